//! A small synchronous D-Bus client, with the calls needed to ask the systemd *user* manager for a transient unit.
//!
//! It is written by hand because it runs before anything large is allocated, must never wait beyond its deadline, and
//! needs five methods of one interface. A full client would add a 64-line dependency tree for that.
//!
//! Every answer may be hostile: lengths are checked, sizes are bounded, and a malformed answer is an error and never a
//! panic.

mod address;
mod auth;
mod error;
mod message;
mod property;
mod socket;
mod wire;

#[cfg(test)]
mod tests;

use std::time::Duration;

use rustix::process::geteuid;

pub(crate) use self::address::UserBus;
pub(crate) use self::error::BusError;
pub(crate) use self::property::{ExecCommand, Property, TransientUnit};

use self::address::{BusAddress, Listener};
use self::error::Attempts;
use self::message::{Incoming, MessageBody, MethodCall, PREFIX};
use self::socket::BusStream;
use self::wire::{Encoder, MalformedMessage};
use leash_model::clock::Moment;

const MANAGER: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER_INTERFACE: &str = "org.freedesktop.systemd1.Manager";

/// A connection to the user manager.
#[derive(Debug)]
pub(crate) struct Bus {
    channel: BusStream,
    /// The manager's name on a bus; `None` if we talk to the manager itself.
    manager: Option<&'static str>,
    last_serial: u32,
    broken: bool,
}

impl Bus {
    /// Connects to the first address at which a user manager answers.
    ///
    /// `budget` is the time for this and for all calls that follow, until [`Bus::renew`]. An address that hangs may use
    /// half of the time left, so that the next one can still be tried.
    pub(crate) fn connect(user_bus: &UserBus, budget: Duration) -> Result<Bus, BusError> {
        let whole = Moment::now() + budget;
        let mut candidates = user_bus.candidates().into_iter().peekable();
        let mut attempts = Vec::new();
        while let Some(address) = candidates.next() {
            let share = if candidates.peek().is_some() { halfway(whole) } else { whole };
            match Bus::open(&address, share) {
                Ok(mut bus) => {
                    bus.channel.set_deadline(whole);
                    return Ok(bus);
                }
                Err(error) => attempts.push((address, error)),
            }
        }
        if attempts.is_empty() { Err(BusError::NoAddress) } else { Err(BusError::NoAnswer(Attempts(attempts))) }
    }

    /// Connects to one address, and checks that a user manager answers there.
    fn open(address: &BusAddress, deadline: Moment) -> Result<Bus, BusError> {
        let mut channel = BusStream::connect(&address.socket, deadline)?;
        auth::authenticate(&mut channel, geteuid().as_raw())?;
        Bus::greet(channel, address.listener)
    }

    fn greet(channel: BusStream, listener: Listener) -> Result<Bus, BusError> {
        let mut bus = Bus { channel, manager: None, last_serial: 0, broken: false };
        if listener == Listener::Bus {
            bus.hello()?;
            bus.manager = Some(MANAGER);
        }
        bus.ping()?;
        Ok(bus)
    }

    /// Sets a new time limit for the calls that follow.
    pub(crate) fn renew(&mut self, budget: Duration) {
        self.channel.set_deadline(Moment::now() + budget);
    }

    /// Asks for a transient unit. Returns the object path of the job that starts it. The units `with` it are made in
    /// the same transaction, and start if it needs them. If one of them exists already, the manager refuses all.
    ///
    /// The answer means that the job is queued, not that it is done: for a scope, read `/proc/PID/cgroup` to know when
    /// its processes have arrived. The manager does not report a job that fails after that. A scope with
    /// `CollectMode=inactive-or-failed` then has the `LoadState` `not-found`, a millisecond or two later.
    pub(crate) fn start_transient_unit(
        &mut self,
        name: &str,
        properties: &[(&str, Property)],
        with: &[TransientUnit],
    ) -> Result<String, BusError> {
        let call = self.manager_call("StartTransientUnit", "ssa(sv)a(sa(sv))");
        let reply = self.call(&call, |arguments| {
            arguments.str(name);
            // Refuse the job if it conflicts with a waiting one.
            arguments.str("fail");
            property::encode_all(properties, arguments);
            property::encode_units(with, arguments);
        })?;
        self.trust(reply.text("o"))
    }

    /// Changes properties of a loaded unit, until it is unloaded or the machine restarts.
    pub(crate) fn set_unit_properties(&mut self, name: &str, properties: &[(&str, Property)]) -> Result<(), BusError> {
        let call = self.manager_call("SetUnitProperties", "sba(sv)");
        self.call(&call, |arguments| {
            arguments.str(name);
            // Not on disk.
            arguments.bool(true);
            property::encode_all(properties, arguments);
        })?;
        Ok(())
    }

    /// Stops a unit. Returns the object path of the job that does it.
    pub(crate) fn stop_unit(&mut self, name: &str) -> Result<String, BusError> {
        let call = self.manager_call("StopUnit", "ss");
        let reply = self.call(&call, |arguments| {
            arguments.str(name);
            // Drop a waiting job that conflicts with this one.
            arguments.str("replace");
        })?;
        self.trust(reply.text("o"))
    }

    /// Returns a text property of a unit, such as `ActiveState` of `Unit` or `ControlGroup` of `Scope`.
    ///
    /// `interface` is the last word of its D-Bus interface. For a unit that does not exist the manager makes up an
    /// answer: its `ActiveState` is `inactive` and its `LoadState` is `not-found`.
    pub(crate) fn unit_property_string(
        &mut self,
        unit: &str,
        interface: &str,
        property: &str,
    ) -> Result<String, BusError> {
        let call = MethodCall {
            destination: self.manager,
            path: &unit_path(unit),
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            signature: "ss",
        };
        let reply = self.call(&call, |arguments| {
            arguments.str(&format!("{MANAGER}.{interface}"));
            arguments.str(property);
        })?;
        self.trust(reply.variant_text())
    }

    fn hello(&mut self) -> Result<(), BusError> {
        let call = MethodCall {
            destination: Some("org.freedesktop.DBus"),
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
        };
        let reply = self.call(&call, |_| ())?;
        // The reply is our name on the bus. We do not need it, but a reply of another type does not come from a bus.
        self.trust(reply.text("s")).map(drop)
    }

    fn ping(&mut self) -> Result<(), BusError> {
        let call = MethodCall {
            destination: self.manager,
            path: MANAGER_PATH,
            interface: "org.freedesktop.DBus.Peer",
            member: "Ping",
            signature: "",
        };
        self.call(&call, |_| ()).map(drop)
    }

    fn manager_call(&self, member: &'static str, signature: &'static str) -> MethodCall<'static> {
        MethodCall { destination: self.manager, path: MANAGER_PATH, interface: MANAGER_INTERFACE, member, signature }
    }

    /// Sends a call and waits for its reply.
    fn call(&mut self, call: &MethodCall<'_>, arguments: impl FnOnce(&mut Encoder)) -> Result<MessageBody, BusError> {
        if self.broken {
            return Err(BusError::Broken);
        }
        // Zero is not a serial.
        let serial = self.last_serial.checked_add(1).ok_or(BusError::Broken)?;
        let message = call.encode(serial, arguments)?;
        self.last_serial = serial;
        let result = self.exchange(&message, serial);
        self.broken = result.is_err();
        match result? {
            Ok(body) => Ok(body),
            Err((name, text)) => Err(BusError::Refused { method: call.member, name, text }),
        }
    }

    fn exchange(&mut self, message: &[u8], serial: u32) -> Result<Reply, BusError> {
        self.channel.send(message)?;
        loop {
            match self.receive()? {
                Incoming::Return { to, body } if to == serial => return Ok(Ok(body)),
                Incoming::Error { to, name, body } if to == serial => return Ok(Err((name, body.error_text()))),
                // A signal (the bus says which name it gave us), or a reply to a call that we did not make. The
                // deadline bounds their number.
                Incoming::Return { .. } | Incoming::Error { .. } | Incoming::Unasked => {}
            }
        }
    }

    fn receive(&mut self) -> Result<Incoming, BusError> {
        let mut bytes = self.channel.take(PREFIX)?;
        let prefix = bytes.first_chunk::<PREFIX>().ok_or(MalformedMessage::Truncated)?;
        let length = message::total_length(prefix)?;
        bytes.extend(self.channel.take(length - PREFIX)?);
        Ok(message::decode(&bytes)?)
    }

    /// Marks the connection as broken if a reply has another type than the method promises: then the other side is not
    /// a user manager.
    fn trust<T>(&mut self, reading: Result<T, MalformedMessage>) -> Result<T, BusError> {
        self.broken |= reading.is_err();
        Ok(reading?)
    }
}

/// The values of a return, or the name and the text of an error.
type Reply = Result<MessageBody, (String, String)>;

/// The middle between now and `deadline`.
fn halfway(deadline: Moment) -> Moment {
    let now = Moment::now();
    now + (deadline - now) / 2
}

/// The object path of a unit: every byte that a path may not hold becomes `_` and its hex code.
fn unit_path(name: &str) -> String {
    let mut path = format!("{MANAGER_PATH}/unit/");
    if name.is_empty() {
        // A bus closes the connection on a path that ends with a slash. This path is only unknown.
        path.push('_');
    }
    for (index, byte) in name.bytes().enumerate() {
        // systemd escapes a leading digit too.
        if byte.is_ascii_alphabetic() || (index > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}
