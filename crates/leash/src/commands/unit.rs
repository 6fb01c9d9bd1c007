//! The systemd user unit of `leash watch`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use leash_core::duration;

use crate::args::Watch;
use crate::exit_code;
use crate::output::printer::Printer;
use crate::places;

/// The unit's name.
const NAME: &str = "leash-watch.service";

/// Writes the unit, enables it and starts it.
pub(super) fn install(printer: Printer, args: &Watch) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            printer.error_text(format!("leash does not know where it is: {error}"), Some("check /proc/self/exe"));
            return exit_code::LEASH_FAILED;
        }
    };
    if let Err(error) = write(&dir, &unit(&program, args)) {
        printer
            .error_text(format!("cannot write {}: {error}", dir.join(NAME).display()), Some("check XDG_CONFIG_HOME"));
        return exit_code::LEASH_FAILED;
    }
    printer.data(format!("wrote {}\n", dir.join(NAME).display()));
    match systemctl(&["daemon-reload"]).and_then(|()| systemctl(&["restart", NAME])) {
        Ok(()) => printer.data("started it; it starts again with each login\n"),
        Err(why) => printer.warning(format!(
            "the user manager could not be told ({why}); it is enabled and starts with the next login"
        )),
    }
    exit_code::OK
}

/// Stops it and removes it.
pub(super) fn uninstall(printer: Printer) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    if !dir.join(NAME).exists() {
        printer.data(format!("{} is not installed\n", NAME));
        return exit_code::OK;
    }
    if let Err(why) = systemctl(&["stop", NAME]) {
        printer.warning(format!("the user manager could not be told to stop it ({why})"));
    }
    for path in [link(&dir), dir.join(NAME)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                printer.error_text(format!("cannot remove {}: {error}", path.display()), None);
                return exit_code::LEASH_FAILED;
            }
            _ => {}
        }
    }
    // It is gone; a manager that does not answer will see so when it is asked the next time.
    let _ = systemctl(&["daemon-reload"]);
    printer.data(format!("removed {}\n", dir.join(NAME).display()));
    exit_code::OK
}

fn no_home(printer: Printer) -> u8 {
    printer.error_text("there is no home directory to write a user unit to", Some("set HOME or XDG_CONFIG_HOME"));
    exit_code::LEASH_FAILED
}

/// The unit as systemd reads it.
fn unit(program: &Path, args: &Watch) -> String {
    let mut command = vec![quoted(&program.display().to_string()), "watch".to_owned()];
    for (name, span) in
        [("--interval", args.interval), ("--min-age", args.min_age), ("--settle", args.settle), ("--grace", args.grace)]
    {
        command.extend([name.to_owned(), duration::exact(span)]);
    }
    if let Some(most) = args.max_memory {
        command.extend(["--max-memory".to_owned(), most.to_string()]);
    }
    format!(
        "# Written by `leash watch --install`; `leash watch --uninstall` removes it.\n\
         [Unit]\n\
         Description=End MCP servers that nobody holds any more\n\
         \n\
         [Service]\n\
         ExecStart={}\n\
         Restart=on-failure\n\
         RestartSec=30\n\
         Nice=10\n\
         IOSchedulingClass=idle\n\
         NoNewPrivileges=yes\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" ")
    )
}

/// A word of a command line in a unit: percent and dollar signs mean something there.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{word}\"")
}

fn link(dir: &Path) -> PathBuf {
    dir.join("default.target.wants").join(NAME)
}

/// Writes the unit and enables it, as `systemctl enable` does: by a link.
fn write(dir: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir.join("default.target.wants"))?;
    let young = dir.join(format!(".{NAME}.new"));
    fs::write(&young, text)?;
    fs::rename(&young, dir.join(NAME))?;
    match std::os::unix::fs::symlink(dir.join(NAME), link(dir)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Tells the user manager.
#[expect(clippy::disallowed_methods, reason = "it ends by itself at once, and is waited for")]
fn systemctl(words: &[&str]) -> Result<(), String> {
    let mut command = std::process::Command::new("systemctl");
    command.arg("--user").args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| format!("systemctl: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("systemctl failed").to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_unit_keeps_what_was_asked_for() {
        let args = Watch {
            once: false,
            interval: Duration::from_secs(90),
            min_age: Duration::from_secs(60),
            settle: Duration::from_secs(10),
            grace: Duration::from_millis(2500),
            max_memory: Some(8 << 30),
            install: true,
            uninstall: false,
        };
        let unit = unit(Path::new("/opt/100% mine/leash"), &args);
        let command = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert_eq!(
            command,
            "ExecStart=\"/opt/100%% mine/leash\" watch --interval 90s --min-age 1m --settle 10s --grace 2500ms --max-memory 8589934592"
        );
    }
}
