//! Decides whether a process is an MCP server, and which. It compares the process with the exact commands in clients'
//! configurations and with known packages; a word in a name is never enough. npx, uvx, shells and interpreters stand
//! between the configuration and the process, so each form is reduced to the program that was meant. A command that
//! depends on the directory, or that has variables, matches with certainty only where directory and values are known.

use std::path::{Component, Path, PathBuf};

use super::{DeclaredCommand, Knowledge, PACKAGES, ServerPackage};
use crate::clients::{CLIENTS, Client};
use crate::facts::{Evidence, Process};

mod variables;

use leash_model::launch::{LaunchedProgram, Launcher};
pub(super) use variables::named as named_variables;
use variables::{expand, fits, has_variables, is_all_variable};

/// The agreement of a command line with a declared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    /// It is another command.
    No,
    /// Everything that is known fits, but something is not known.
    Likely,
    /// It is the declared command.
    Certain,
}

/// A declared server, prepared for many comparisons.
#[derive(Debug)]
struct PreparedCommand<'a> {
    declared: &'a DeclaredCommand,
    /// The program that its command starts, if that is the same for every process.
    fixed: Option<LaunchedProgram>,
    /// True if only a variable names the program.
    vague: bool,
}

/// The knowledge, prepared for many comparisons.
#[derive(Debug)]
pub struct Matcher<'a> {
    declared: Vec<PreparedCommand<'a>>,
}

impl<'a> Matcher<'a> {
    /// Prepares the knowledge once.
    pub fn new(knowledge: &'a Knowledge) -> Matcher<'a> {
        Matcher { declared: knowledge.declared.iter().map(PreparedCommand::new).collect() }
    }

    /// The reason to take a process for an MCP server; `None` if it is none. Of several clients that declare the same
    /// command, `client` is preferred.
    pub fn server(&self, process: &Process, client: Option<&str>) -> Option<Evidence> {
        let launch = LaunchedProgram::of(&process.argv)?;
        let mut best: Option<((Agreement, bool), &DeclaredCommand)> = None;
        for known in &self.declared {
            let agreement = known.agreement(&launch, process);
            let rank = (agreement, client == Some(&known.declared.client));
            if agreement != Agreement::No && best.is_none_or(|(best, _)| rank > best) {
                best = Some((rank, known.declared));
            }
        }
        if let Some(((Agreement::Certain, _), DeclaredCommand { client, name, .. })) = best {
            return Some(Evidence::Declared { client: client.clone(), name: name.clone() });
        }
        if let Some(package) = PACKAGES.iter().find(|package| is_package(&launch, package)) {
            return Some(Evidence::Package { package: package_name(&launch.target, package) });
        }
        best.map(|(_, declared)| Evidence::Resembles { client: declared.client.clone(), name: declared.name.clone() })
    }
}

/// The client whose program a process with this name and command line is. Only file names and whole path components are
/// compared, so that a server called `cursor-notes` is not taken for Cursor.
pub(crate) fn client_of(comm: &str, argv: &[String]) -> Option<&'static Client> {
    let first = argv.first().map(|first| base(first)).unwrap_or_default();
    // A process may overwrite its title: "claude --resume" in one piece.
    let first = first.split_ascii_whitespace().next().unwrap_or_default();
    let script = argv.iter().skip(1).find(|word| !word.starts_with('-'));
    CLIENTS.iter().find(|client| {
        client.host.names.iter().any(|name| *name == comm || *name == first)
            || script.is_some_and(|script| client.host.scripts.iter().any(|part| is_part(script, part)))
    })
}

/// True if `part` matches: a part that ends with a slash matches anywhere in the path, any other at its end.
fn is_part(script: &str, part: &str) -> bool {
    if part.ends_with('/') { script.contains(part) } else { script.ends_with(part) }
}

impl<'a> PreparedCommand<'a> {
    fn new(declared: &'a DeclaredCommand) -> PreparedCommand<'a> {
        let launch = LaunchedProgram::of(&declared.command);
        let fixed = !declared.command.iter().any(|word| has_variables(word));
        let vague = launch.as_ref().is_some_and(|launch| is_all_variable(&launch.target));
        PreparedCommand { declared, fixed: launch.filter(|_| fixed), vague }
    }

    fn agreement(&self, launch: &LaunchedProgram, process: &Process) -> Agreement {
        let is_inside = || process.cwd.as_ref().zip(self.declared.project.as_ref());
        let is_inside = || is_inside().is_some_and(|(cwd, project)| Path::new(cwd).starts_with(project));
        match self.agreement_anywhere(launch, process) {
            Agreement::Certain if self.declared.inside_only && !is_inside() => Agreement::Likely,
            agreement => agreement,
        }
    }

    fn agreement_anywhere(&self, launch: &LaunchedProgram, process: &Process) -> Agreement {
        if let Some(meant) = &self.fixed {
            return self.compare(launch, meant, process);
        }
        let project = self.declared.project.as_deref();
        // A user's own file applies to any workspace: the directory of the process, or an unknown one.
        match (project, self.filled_in(launch, process, project.or(process.cwd.as_deref()))) {
            (None, Agreement::No) => self.filled_in(launch, process, None).min(Agreement::Likely),
            (_, agreement) => agreement,
        }
    }

    fn filled_in(&self, launch: &LaunchedProgram, process: &Process, workspace: Option<&str>) -> Agreement {
        let filled = |workspace: Option<&str>| {
            let words = self.declared.command.iter().map(|word| expand(word, process, workspace));
            LaunchedProgram::of(&words.collect::<Vec<_>>())
        };
        // The directory of the process itself can't prove that it is the right one.
        let directory = filled(self.declared.project.as_deref()).and_then(|launch| launch.directory);
        match filled(workspace).map(|meant| LaunchedProgram { directory, ..meant }) {
            // A variable alone would match everything that an interpreter runs.
            Some(meant) if self.vague && has_variables(&meant.target) => Agreement::No,
            Some(meant) if self.vague => self.compare(launch, &meant, process).min(Agreement::Likely),
            Some(meant) => self.compare(launch, &meant, process),
            None => Agreement::No,
        }
    }

    fn compare(&self, launch: &LaunchedProgram, meant: &LaunchedProgram, process: &Process) -> Agreement {
        let directory = self.directory(meant, process);
        let words = same_launch(launch, meant, directory.as_deref(), process);
        if words == Agreement::No || !meant.depends_on_directory() || launch.shares_environment(meant) {
            return words;
        }
        let is_in = launch.directory.as_deref().or(process.cwd.as_deref());
        match (is_in, directory) {
            (Some(is_in), Some(directory)) if !has_variables(&directory) => {
                if normal(is_in) == normal(&directory) {
                    words
                } else {
                    Agreement::No
                }
            }
            _ => words.min(Agreement::Likely),
        }
    }

    /// The directory in which the client starts the server, as far as the configuration tells.
    fn directory(&self, meant: &LaunchedProgram, process: &Process) -> Option<String> {
        let project = self.declared.project.as_deref();
        let named = meant.directory.as_deref().or(self.declared.cwd.as_deref());
        let Some(named) = named.map(|named| expand(named, process, project)) else {
            return project.map(str::to_owned);
        };
        if named.starts_with('/') || has_variables(&named) {
            return Some(named);
        }
        project.map(|project| format!("{project}/{named}"))
    }
}

/// A path without `.`, `..` and doubled slashes.
fn normal(path: &str) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Compares the arguments with the declared ones.
fn same_args(args: &[String], declared: &[String]) -> Agreement {
    if args.len() != declared.len() {
        return Agreement::No;
    }
    args.iter().zip(declared).map(|(arg, declared)| fits(arg, declared)).min().unwrap_or(Agreement::Certain)
}

/// Compares a program with the declared one. The client looks up a name without a directory in PATH.
fn same_program(program: &str, declared: &str, process: &Process) -> Agreement {
    let whole = fits(program, declared);
    let is_name = |word: &str| !word.contains('/');
    if whole != Agreement::No || has_variables(declared) || !(is_name(program) || is_name(declared)) {
        return whole;
    }
    if base(program) != base(declared) {
        return Agreement::No;
    }
    let path = if is_name(program) { declared } else { program };
    let directory = path.strip_suffix(base(path)).unwrap_or_default().trim_end_matches('/');
    let path = process.variables.as_ref().and_then(|variables| variables.get("PATH"));
    let is_in_path = path.is_some_and(|path| path.split(':').any(|dir| dir.trim_end_matches('/') == directory));
    if is_in_path { Agreement::Certain } else { Agreement::Likely }
}

/// Compares a launch with the declared one, which starts in `directory`.
fn same_launch(
    launch: &LaunchedProgram,
    meant: &LaunchedProgram,
    directory: Option<&str>,
    process: &Process,
) -> Agreement {
    let target = match (launch.launcher, meant.launcher) {
        (Launcher::Runner, Launcher::Runner) => fits(unversioned(&launch.target), unversioned(&meant.target)),
        // npx and uvx finally start a file of the package.
        (Launcher::Interpreter | Launcher::Exec, Launcher::Runner) if has_variables(&meant.target) => Agreement::No,
        (Launcher::Interpreter | Launcher::Exec, Launcher::Runner) => {
            comes_from_runner(&launch.target, unversioned(&meant.target), directory)
        }
        // `#!/usr/bin/env node`.
        (Launcher::Interpreter | Launcher::Exec, Launcher::Exec) => {
            same_program(&launch.target, &meant.target, process)
        }
        (Launcher::Interpreter, Launcher::Interpreter) | (Launcher::Module, Launcher::Module) => {
            fits(&launch.target, &meant.target)
        }
        (Launcher::Exec | Launcher::Module | Launcher::Interpreter, _) | (Launcher::Runner, _) => Agreement::No,
    };
    target.min(same_args(&launch.args, &meant.args))
}

fn is_package(launch: &LaunchedProgram, (name, programs): &ServerPackage) -> bool {
    let beginning = name.strip_suffix('*');
    match launch.launcher {
        Launcher::Runner => match beginning {
            Some(beginning) => unversioned(&launch.target).starts_with(beginning),
            None => unversioned(&launch.target) == *name,
        },
        Launcher::Module => beginning.is_none() && launch.target.split('.').next() == Some(&name.replace('-', "_")),
        Launcher::Interpreter => match beginning {
            Some(beginning) => launch.target.contains(&format!("/node_modules/{beginning}")),
            None => {
                comes_from(&launch.target, name)
                    || programs.iter().any(|program| is_installed_as(&launch.target, program))
            }
        },
        // An executable may have any name, so its name proves no package.
        Launcher::Exec => false,
    }
}

/// Tells whether a runner started this file for a package. Runners install into their own directories or into the
/// project.
fn comes_from_runner(path: &str, package: &str, project: Option<&str>) -> Agreement {
    const RUNNERS: [&str; 4] = ["/node_modules/", "/_npx/", "/uv/", "/pipx/"];
    if !comes_from(path, package) {
        return Agreement::No;
    }
    let of_project = project.is_some_and(|project| Path::new(path).starts_with(project));
    if of_project || RUNNERS.iter().any(|dir| path.contains(dir)) { Agreement::Certain } else { Agreement::Likely }
}

/// True if a file is the program of a package, or lies in its directory.
fn comes_from(path: &str, package: &str) -> bool {
    let last = package.rsplit('/').next().unwrap_or(package);
    let scoped = package.starts_with('@');
    path.contains(&format!("/node_modules/{package}/"))
        || is_installed_as(path, last) && !scoped
        || scoped
            && (is_installed_as(path, &format!("mcp-{last}")) || is_installed_as(path, last) && path.contains("/_npx/"))
}

/// True if installers put a package's program at this path.
fn is_installed_as(path: &str, program: &str) -> bool {
    let in_bin = Path::new(path).parent().is_some_and(|dir| dir.ends_with(".bin") || dir.ends_with("bin"));
    in_bin && base(path) == program
}

fn package_name(target: &str, (name, _): &ServerPackage) -> String {
    match name.strip_suffix('*') {
        None => (*name).to_owned(),
        Some(beginning) => {
            let rest = target.find(beginning).map_or(target, |at| &target[at + beginning.len()..]);
            let rest = rest.split('/').next().unwrap_or_default();
            format!("{beginning}{}", unversioned(rest))
        }
    }
}

/// `@scope/name@1.2` and `name==1.2` without the version.
fn unversioned(package: &str) -> &str {
    let name = package.split("==").next().unwrap_or(package);
    match name.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => &name[..at],
        None => name,
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
