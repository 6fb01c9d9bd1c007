//! The properties that a transient unit is made of.

use super::wire::Encoder;

/// A value of a transient unit's property, with the D-Bus type that systemd wants for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Property {
    /// `s`: `Description`, `Slice`, `CollectMode`, `Type`, `KillMode`...
    Str(String),
    /// `as`: `BindsTo`, `After`, `Environment`...
    StrList(Vec<String>),
    /// `b`: `Delegate`, `SendSIGKILL`, `DefaultDependencies`...
    Bool(bool),
    /// `i`: `KillSignal`...
    I32(i32),
    /// `u`: leash sets no such property; the tests of the wire format use it.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests of the wire format make one"))]
    U32(u32),
    /// `t`: `TimeoutStopUSec` (microseconds), `TasksMax`...
    U64(u64),
    /// `au`: `PIDs`, the processes that a new scope takes in.
    PidList(Vec<u32>),
    /// `a(sasb)`: `ExecStart` and its relatives.
    Exec(Vec<ExecCommand>),
}

/// One command line of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecCommand {
    /// The program, an absolute path.
    pub(crate) path: String,
    /// The arguments; the first is the program's `argv[0]`.
    pub(crate) argv: Vec<String>,
    /// True if the unit counts as healthy even if the command failed.
    pub(crate) ignore_failure: bool,
}

/// A unit that is made together with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransientUnit {
    pub(crate) name: String,
    pub(crate) properties: Vec<(&'static str, Property)>,
}

impl Property {
    /// Writes the value as a variant: its type, then itself.
    pub(super) fn encode(&self, out: &mut Encoder) {
        out.signature(self.signature());
        match self {
            Property::Str(value) => out.str(value),
            Property::StrList(values) => out.strings(values),
            Property::Bool(value) => out.bool(*value),
            Property::I32(value) => out.i32(*value),
            Property::U32(value) => out.u32(*value),
            Property::U64(value) => out.u64(*value),
            Property::PidList(pids) => out.array(4, |list| pids.iter().for_each(|pid| list.u32(*pid))),
            Property::Exec(commands) => out.array(8, |list| commands.iter().for_each(|command| command.encode(list))),
        }
    }

    fn signature(&self) -> &'static str {
        match self {
            Property::Str(_) => "s",
            Property::StrList(_) => "as",
            Property::Bool(_) => "b",
            Property::I32(_) => "i",
            Property::U32(_) => "u",
            Property::U64(_) => "t",
            Property::PidList(_) => "au",
            Property::Exec(_) => "a(sasb)",
        }
    }
}

impl ExecCommand {
    fn encode(&self, out: &mut Encoder) {
        out.align(8);
        out.str(&self.path);
        out.strings(&self.argv);
        out.bool(self.ignore_failure);
    }
}

/// Writes the named properties as `a(sv)`.
pub(super) fn encode_all(properties: &[(&str, Property)], out: &mut Encoder) {
    out.array(8, |list| {
        for (name, value) in properties {
            list.align(8);
            list.str(name);
            value.encode(list);
        }
    });
}

/// Writes units with their properties as `a(sa(sv))`.
pub(super) fn encode_units(units: &[TransientUnit], out: &mut Encoder) {
    out.array(8, |list| {
        for unit in units {
            list.align(8);
            list.str(&unit.name);
            encode_all(&unit.properties, list);
        }
    });
}
