//! Files in the ledger that leash did not write. Any process of the same user can write them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, fstatfs, mkfifoat};
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use super::action::{Blow, Forgery, Part, Route};
use super::actor::descendants;
use super::promise::Forged;
use super::world::{World, session_of};
use crate::process::Process;

/// From linux/magic.h: the file system in which each pidfd has its own inode.
const PID_FS_MAGIC: u32 = 0x5049_4446;

impl World {
    pub(crate) fn forge(&mut self, actor: u32, forgery: Forgery) -> String {
        let made = match forgery {
            Forgery::Over | Forgery::OverKept => self.forge_end(actor, forgery == Forgery::Over),
            _ => self.forge_file(forgery),
        };
        match made {
            Ok(what) => {
                self.tally.faults.add(format_args!("forged record: {forgery}"));
                what
            }
            Err(why) => format!("not forged: {why}"),
        }
    }

    /// Writes into the record of an actor's run that its tree is gone, and kills the keeper if `kills`.
    fn forge_end(&mut self, actor: u32, kills: bool) -> Result<String, String> {
        let keeper = self.tree_part(actor, Part::Keeper).ok_or("no keeper of a tree")?;
        let session = descendants(keeper.pid()).iter().find_map(session_of).ok_or("no session")?;
        let (path, mut record) = self.record_of(&session).ok_or("no record")?;
        record["over"] = gone(&record);
        let text = record.to_string();
        // Written with a rename, as leash does, so that no reader sees half of it.
        let fresh = path.with_extension("forged");
        let written = self.scene.user().act(|| fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)));
        if let Err(error) = written {
            let _ = fs::remove_file(&fresh);
            return Err(error.to_string());
        }
        if kills {
            self.strike(Blow::Kill, &[(actor, Part::Keeper)]);
        }
        Ok(format!("{session} is over, says its record"))
    }

    fn forge_file(&mut self, forgery: Forgery) -> Result<String, String> {
        let run = crate::unique("forged");
        let sessions = self.scene.runtime_dir().join("sessions");
        let kind = if forgery == Forgery::FifoLock { "lock" } else { "json" };
        let file = sessions.join(format!("{run}.{kind}"));
        let record = match forgery {
            Forgery::WrongStart | Forgery::WrongInode => Some(self.innocent_record(&run, forgery)?.to_string()),
            _ => None,
        };
        let made = self.scene.user().act(|| make(&file, forgery, record));
        let fate = match forgery {
            // A full disk stored a part of it.
            _ if made.is_err() && !file.is_dir() => Forged::Torn,
            Forgery::Fifo | Forgery::FifoLock | Forgery::Directory => Forged::Foreign,
            Forgery::WrongStart | Forgery::WrongInode => Forged::Record,
            Forgery::Noise | Forgery::Over | Forgery::OverKept => Forged::Torn,
        };
        if file.exists() {
            self.forged.insert(run.clone(), fate);
        }
        made.map(|()| run).map_err(|error| error.to_string())
    }

    /// A record of a run whose only process has nothing to do with leash, with one detail of its identity wrong.
    fn innocent_record(&self, run: &str, forgery: Forgery) -> Result<Value, String> {
        let (_, _, handle) = self.bystanders.last().ok_or("there is no bystander")?;
        let process = Process::read(handle.pid()).ok_or("the innocent is gone")?;
        let pidfd = pidfd_open(process.pid, PidfdFlags::empty()).map_err(|error| error.to_string())?;
        let has_inodes = fstatfs(&pidfd).is_ok_and(|about| about.f_type as u32 == PID_FS_MAGIC);
        let mut identity = json!({"pid": process.pid.as_raw_nonzero(), "start": process.start, "inode": 1});
        match forgery {
            Forgery::WrongStart => identity["start"] = json!(process.start + 1),
            // Without inodes, only pid and start time tell processes apart.
            _ if !has_inodes => return Err("pidfds have no inodes here".to_owned()),
            _ => {}
        }
        let session = self.resident_tree.as_deref().ok_or("there is no record to begin with")?;
        let (_, mut record) = self.record_of(session).ok_or("there is no record to begin with")?;
        for (name, value) in [
            ("run", json!(run)),
            ("session", json!(run)),
            ("leader", identity.clone()),
            ("members", json!([identity])),
            ("leaf", Value::Null),
        ] {
            record[name] = value;
        }
        Ok(record)
    }

    /// The record of a session's run, and its path.
    pub(crate) fn record_of(&self, session: &str) -> Option<(PathBuf, Value)> {
        let records = self.scene.ledger().into_iter().filter(|path| is_record(path));
        let mut records = records.filter_map(|path| {
            let record = serde_json::from_slice::<Value>(&fs::read(&path).ok()?).ok()?;
            Some((path, record))
        });
        records.find(|(_, record)| record["session"] == session)
    }

    /// True if an actor has its own tree with a keeper.
    pub(crate) fn has_tree(&self, actor: u32) -> bool {
        let route = self.actors.get(&actor).map(|actor| actor.start.route);
        matches!(route, Some(Route::Run | Route::ServeStdio))
    }
}

/// True if it is a regular file with the name of a record: opening a FIFO would block until another process opens it.
pub(crate) fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "json") && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn make(file: &Path, forgery: Forgery, record: Option<String>) -> io::Result<()> {
    match (forgery, record) {
        (Forgery::Fifo | Forgery::FifoLock, _) => Ok(mkfifoat(CWD, file, Mode::from_raw_mode(0o600))?),
        (Forgery::Directory, _) => {
            fs::create_dir(file)?;
            fs::write(file.join("inside"), "something")
        }
        (_, Some(record)) => fs::write(file, record),
        (_, None) => fs::write(file, crate::random().to_ne_bytes().repeat(40)),
    }
}

/// The receipt of a tree that is gone, as a keeper writes it.
fn gone(record: &Value) -> Value {
    json!({
        "version": 1,
        "session": record["session"],
        "run": record["run"],
        "name": record["name"],
        "reason": {"kind": "server_exited"},
        "containment": record["containment"],
        "holdings": [{"kind": "tree", "fate": "gone", "how": "exited", "members": 1, "memory_bytes": 0}],
        "ended_by": "keeper",
        "started_ms": record["started_ms"],
        "ended_ms": record["started_ms"],
        "took_ms": 1,
    })
}
