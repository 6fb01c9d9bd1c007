//! The systemd user unit of `leash watch`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, fs, io};

use leash_model::duration;
use leash_orphans::clients::Roots;

use crate::args::Watch;
use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The unit that runs leash.
const SERVICE: &str = "leash-watch.service";

/// The unit that starts it again and again, after `--install --once`.
const TIMER: &str = "leash-watch.timer";

/// The units, each with the target that starts it.
const UNITS: [(&str, &str); 2] = [(SERVICE, "default.target"), (TIMER, "timers.target")];

/// A unit to install.
struct UnitFile {
    name: &'static str,
    text: String,
    /// True if its target starts it, false if another unit does.
    is_enabled: bool,
}

/// Writes the units, enables them and starts them. They replace those that are installed.
pub(super) fn install(printer: Printer, args: &Watch) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    let Some(program) = places::program() else {
        printer.error_text("leash can't find its own executable", Some("check /proc/self/exe"));
        return exit_code::LEASH_FAILED;
    };
    let files = files(&program, args, &environment());
    if let Err((path, error)) = write(&dir, &files) {
        printer.error_text(format!("cannot write {}: {error}", path.display()), Some("check XDG_CONFIG_HOME"));
        return exit_code::LEASH_FAILED;
    }
    for file in &files {
        printer.say(format_args!("wrote {}", dir.join(file.name).display()));
    }
    printer.say(format_args!("enabled it: it runs {}", times(args)));
    let starting = files.iter().find(|file| file.is_enabled).map_or(SERVICE, |file| file.name);
    // Ends an earlier installation, as the manager knows it; most of the time there is none. The timer is first, because
    // it starts the service.
    for (name, _) in UNITS.into_iter().rev() {
        let _ = systemctl(&["stop", name]);
    }
    if let Err(why) = systemctl(&["daemon-reload"]) {
        printer.warning(format!("it is not started: systemctl failed ({why})"));
        printer.note(format!("log in again, or run `systemctl --user restart {starting}` where there is one"));
        return exit_code::OK;
    }
    if let Err(why) = systemctl(&["start", starting]) {
        let hint = format!("`systemctl --user status {starting}` and `journalctl --user --unit {starting}` say more");
        printer.error_text(format!("the user manager did not start it: {why}"), Some(&hint));
        return exit_code::NOT_ALL;
    }
    printer.say("started it");
    exit_code::OK
}

/// The times at which the installed watch runs.
fn times(args: &Watch) -> String {
    let often = if args.once { format!("every {} ", duration::exact(args.interval)) } else { String::new() };
    format!("{often}while you are logged in; after `loginctl enable-linger`, also while you are not")
}

/// Stops the units and removes them.
pub(super) fn uninstall(printer: Printer) -> u8 {
    let Some(dir) = places::units_dir() else { return no_home(printer) };
    // A link may be dangling.
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
    let installed: Vec<_> = UNITS.into_iter().filter(|unit| paths(&dir, *unit).iter().any(exists)).collect();
    if installed.is_empty() {
        printer.say(format_args!("{SERVICE} is not installed"));
        return exit_code::OK;
    }
    let stopped: Result<(), String> = installed.iter().rev().try_for_each(|(name, _)| systemctl(&["stop", name]));
    for path in installed.iter().flat_map(|unit| paths(&dir, *unit)) {
        if let Err(error) = remove(&path) {
            let hint = "remove it by hand; `leash watch --install` had written it";
            printer.error_text(format!("cannot remove {}: {error}", path.display()), Some(hint));
            return exit_code::LEASH_FAILED;
        }
    }
    // The units are removed; a manager that does not answer now will notice it later. The manager remembers a failed
    // unit until `reset-failed`.
    let _ = systemctl(&["daemon-reload"]);
    for (name, _) in &installed {
        let _ = systemctl(&["reset-failed", name]);
        printer.say(format_args!("removed {}", dir.join(name).display()));
    }
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

/// The units as systemd reads them: a service that stays, or a timer and a service that ends.
fn files(program: &Path, args: &Watch, environment: &[(&str, String)]) -> Vec<UnitFile> {
    let service = UnitFile { name: SERVICE, text: service(program, args, environment), is_enabled: !args.once };
    let timer = || UnitFile { name: TIMER, text: timer(args), is_enabled: true };
    [service].into_iter().chain(args.once.then(timer)).collect()
}

const WRITTEN_BY: &str = "# Written by `leash watch --install`; `leash watch --uninstall` removes it.";

fn service(program: &Path, args: &Watch, environment: &[(&str, String)]) -> String {
    let mut command = started(&program.display().to_string());
    command.push("watch".to_owned());
    if args.once {
        command.push("--once".to_owned());
    }
    for (name, span) in
        [("--interval", args.interval), ("--min-age", args.min_age), ("--settle", args.settle), ("--grace", args.grace)]
    {
        command.extend([name.to_owned(), duration::exact(span)]);
    }
    if let Some(most) = args.max_memory {
        command.extend(["--max-memory".to_owned(), most.to_string()]);
    }
    if let Some(percent) = args.pressure {
        command.extend(["--pressure".to_owned(), quoted(&percent.to_string())]);
    }
    let environment: String = environment
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    let (life, install) = match args.once {
        true => ("Type=oneshot", ""),
        false => ("Type=exec\nRestart=on-failure\nRestartSec=30", "\n[Install]\nWantedBy=default.target\n"),
    };
    format!(
        "{WRITTEN_BY}\n\
         [Unit]\n\
         Description=End orphaned MCP servers\n\
         \n\
         [Service]\n\
         {environment}\
         ExecStart={}\n\
         {life}\n\
         Nice=10\n\
         IOSchedulingClass=idle\n\
         NoNewPrivileges=yes\n\
         {install}",
        command.join(" ")
    )
}

/// Starts the service at once, and again when `--interval` has passed since its end.
fn timer(args: &Watch) -> String {
    format!(
        "{WRITTEN_BY}\n\
         [Unit]\n\
         Description=Look for orphaned MCP servers and end them, again and again\n\
         \n\
         [Timer]\n\
         OnActiveSec=0\n\
         OnUnitInactiveSec={}ms\n\
         AccuracySec=1s\n\
         \n\
         [Install]\n\
         WantedBy=timers.target\n",
        args.interval.as_millis()
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

/// The files of an installed unit: itself, and the link that enables it.
fn paths(dir: &Path, (name, target): (&str, &str)) -> [PathBuf; 2] {
    [dir.join(format!("{target}.wants")).join(name), dir.join(name)]
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes the units and enables them with links, as `systemctl enable` does. Files of another installation are removed.
fn write(dir: &Path, files: &[UnitFile]) -> Result<(), (PathBuf, io::Error)> {
    for unit in UNITS {
        let [link, path] = paths(dir, unit);
        let file = files.iter().find(|file| file.name == unit.0);
        let written = match file {
            Some(file) => replace(&path, &file.text),
            None => remove(&path),
        };
        written.map_err(|error| (path.clone(), error))?;
        let linked = match file.is_some_and(|file| file.is_enabled) {
            true => enable(&link, &path),
            false => remove(&link),
        };
        linked.map_err(|error| (link, error))?;
    }
    Ok(())
}

/// Writes a file that readers see complete, as it was or as it is.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let young = path.with_added_extension("new");
    fs::write(&young, text)?;
    fs::rename(&young, path)
}

fn enable(link: &Path, path: &Path) -> io::Result<()> {
    if let Some(dir) = link.parent() {
        fs::create_dir_all(dir)?;
    }
    match std::os::unix::fs::symlink(path, link) {
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

    use leash_model::pressure::StallPercent;

    use super::*;

    fn args(once: bool) -> Watch {
        Watch {
            once,
            interval: Duration::from_secs(90),
            min_age: Duration::from_secs(60),
            settle: Duration::from_secs(10),
            grace: Duration::from_millis(2500),
            max_memory: Some(8 << 30),
            pressure: Some(StallPercent::DEFAULT),
            install: true,
            uninstall: false,
        }
    }

    #[test]
    fn a_unit_contains_the_given_options() {
        let environment = [("XDG_STATE_HOME", "/home/a b/50%\"\\".to_owned())];
        let files = files(Path::new("/opt/100% $mine/leash"), &args(false), &environment);
        let [UnitFile { name: SERVICE, text, is_enabled: true }] = &files[..] else { panic!("not one service") };
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).expect("the line exists").to_owned();
        assert_eq!(line("Environment="), r#"Environment="XDG_STATE_HOME=/home/a b/50%%\"\\""#);
        assert_eq!(
            line("ExecStart="),
            "ExecStart=\"/opt/100%% $mine/leash\" watch --interval 90s --min-age 1m --settle 10s --grace 2500ms --max-memory 8589934592 --pressure \"10%%\""
        );
    }

    #[test]
    fn a_timer_starts_a_service_that_ends() {
        let files = files(Path::new("/usr/bin/leash"), &args(true), &[]);
        let [service, timer] = &files[..] else { panic!("not a service and a timer") };
        assert_eq!((service.name, service.is_enabled), (SERVICE, false));
        assert!(service.text.contains("\nExecStart=\"/usr/bin/leash\" watch --once "), "{}", service.text);
        assert!(service.text.contains("\nType=oneshot\n"), "{}", service.text);
        assert!(!service.text.contains("[Install]") && !service.text.contains("Restart"), "{}", service.text);
        assert_eq!((timer.name, timer.is_enabled), (TIMER, true));
        assert!(timer.text.contains("\nOnUnitInactiveSec=90000ms\n"), "{}", timer.text);
    }

    #[test]
    fn a_path_that_systemd_refuses_becomes_an_argument() {
        assert_eq!(started("/opt/$5 a/leash"), ["\"/opt/$5 a/leash\""]);
        let odd = started("/opt/$5 O'Hara/leash");
        assert_eq!(odd.join(" "), r#""/bin/sh" "-c" "exec \"$$0\" \"$$@\"" "/opt/$$5 O'Hara/leash""#);
    }
}
