//! The systemd user unit of `leash watch`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, fs, io};

use leash_model::duration;
use leash_orphans::clients::Roots;

use crate::args::Watch;
use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The unit's name.
const NAME: &str = "leash-watch.service";

/// Writes the unit, enables it and starts it.
pub(super) fn install(printer: Printer, args: &Watch) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    let Some(program) = places::program() else {
        printer.error_text("leash can't find its own executable", Some("check /proc/self/exe"));
        return exit_code::LEASH_FAILED;
    };
    if let Err(error) = write(&dir, &unit(&program, args, &environment())) {
        printer
            .error_text(format!("cannot write {}: {error}", dir.join(NAME).display()), Some("check XDG_CONFIG_HOME"));
        return exit_code::LEASH_FAILED;
    }
    printer.say(format_args!("wrote {}", dir.join(NAME).display()));
    printer.say("enabled it: it starts with each login");
    if let Err(why) = systemctl(&["daemon-reload"]) {
        printer.warning(format!("it is not started: systemctl failed ({why})"));
        printer.note(format!("log in again, or run `systemctl --user restart {NAME}` where there is one"));
        return exit_code::OK;
    }
    if let Err(why) = systemctl(&["restart", NAME]) {
        let hint = format!("`systemctl --user status {NAME}` and `journalctl --user --unit {NAME}` say more");
        printer.error_text(format!("the user manager did not start it: {why}"), Some(&hint));
        return exit_code::NOT_ALL;
    }
    printer.say("started it");
    exit_code::OK
}

/// Stops the unit and removes it.
pub(super) fn uninstall(printer: Printer) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    let files = [link(&dir), dir.join(NAME)];
    // The link may be dangling.
    if files.iter().all(|path| path.symlink_metadata().is_err()) {
        printer.say(format_args!("{NAME} is not installed"));
        return exit_code::OK;
    }
    let stopped = systemctl(&["stop", NAME]);
    for path in &files {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let hint = "remove it by hand; `leash watch --install` had written it";
                printer.error_text(format!("cannot remove {}: {error}", path.display()), Some(hint));
                return exit_code::LEASH_FAILED;
            }
            _ => {}
        }
    }
    // The unit is removed; a manager that does not answer now will notice it later. The manager remembers a failed
    // unit until `reset-failed`.
    let _ = systemctl(&["daemon-reload"]);
    let _ = systemctl(&["reset-failed", NAME]);
    printer.say(format_args!("removed {}", dir.join(NAME).display()));
    match stopped {
        Ok(()) => printer.say("stopped it"),
        Err(why) => printer
            .warning(format!("systemctl could not stop it ({why}); if it runs, it continues until the user logs out")),
    }
    exit_code::OK
}

fn no_home(printer: Printer) -> u8 {
    printer.error_text("there is no home directory to write a user unit to", Some("set HOME or XDG_CONFIG_HOME"));
    exit_code::LEASH_FAILED
}

/// The variables of this shell that name directories. The manager does not have them, and the unit must use the same
/// directories as its user.
fn environment() -> Vec<(&'static str, String)> {
    let ours = ["LEASH_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];
    let path = |name: &'static str| {
        let path = std::path::absolute(env::var_os(name).filter(|value| !value.is_empty())?).ok()?;
        Some((name, path.into_os_string().into_string().ok()?))
    };
    ours.into_iter().chain(Roots::variables_wanted()).filter_map(path).collect()
}

/// The unit as systemd reads it.
fn unit(program: &Path, args: &Watch, environment: &[(&str, String)]) -> String {
    let mut command = started(&program.display().to_string());
    command.push("watch".to_owned());
    for (name, span) in
        [("--interval", args.interval), ("--min-age", args.min_age), ("--settle", args.settle), ("--grace", args.grace)]
    {
        command.extend([name.to_owned(), duration::exact(span)]);
    }
    if let Some(most) = args.max_memory {
        command.extend(["--max-memory".to_owned(), most.to_string()]);
    }
    let environment: String = environment
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    format!(
        "# Written by `leash watch --install`; `leash watch --uninstall` removes it.\n\
         [Unit]\n\
         Description=End MCP servers that nobody holds any more\n\
         \n\
         [Service]\n\
         Type=exec\n\
         {environment}\
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

/// The words that start a program. systemd accepts no quotes, backslashes and control characters in the path of the
/// program, but it does in arguments.
fn started(program: &str) -> Vec<String> {
    let is_odd = |letter: char| letter.is_control() || ['"', '\'', '\\'].contains(&letter);
    if !program.contains(is_odd) {
        return vec![quoted(program)];
    }
    let shell = ["/bin/sh", "-c", "exec \"$0\" \"$@\"", program];
    shell.iter().map(|word| quoted(&word.replace('$', "$$"))).collect()
}

/// A quoted word in a unit, with percent signs escaped. A dollar sign needs escaping only in arguments, not in a
/// program's path or in the value of a variable.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('%', "%%");
    format!("\"{word}\"")
}

fn link(dir: &Path) -> PathBuf {
    dir.join("default.target.wants").join(NAME)
}

/// Writes the unit and enables it with a link, as `systemctl enable` does.
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

/// Runs `systemctl --user`.
#[expect(clippy::disallowed_methods, reason = "systemctl exits by itself, and this function waits for it")]
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
    fn a_unit_contains_the_given_options() {
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
        let environment = [("XDG_STATE_HOME", "/home/a b/50%\"\\".to_owned())];
        let unit = unit(Path::new("/opt/100% $mine/leash"), &args, &environment);
        let line = |start: &str| unit.lines().find(|line| line.starts_with(start)).expect("the line exists").to_owned();
        assert_eq!(line("Environment="), r#"Environment="XDG_STATE_HOME=/home/a b/50%%\"\\""#);
        assert_eq!(
            line("ExecStart="),
            "ExecStart=\"/opt/100%% $mine/leash\" watch --interval 90s --min-age 1m --settle 10s --grace 2500ms --max-memory 8589934592"
        );
    }

    #[test]
    fn a_path_that_systemd_refuses_becomes_an_argument() {
        assert_eq!(started("/opt/$5 a/leash"), ["\"/opt/$5 a/leash\""]);
        let odd = started("/opt/$5 O'Hara/leash");
        assert_eq!(odd.join(" "), r#""/bin/sh" "-c" "exec \"$$0\" \"$$@\"" "/opt/$$5 O'Hara/leash""#);
    }
}
