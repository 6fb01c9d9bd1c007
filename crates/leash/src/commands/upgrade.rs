//! `leash upgrade`: names the command of the package manager that owns this leash.

use schemars::JsonSchema;
use serde::Serialize;

use crate::args::Upgrade;
use crate::exit_code;
use crate::installed::Installed;
use crate::output::printer::Printer;

pub(crate) fn upgrade(args: &Upgrade) -> u8 {
    let printer = Printer::new(false);
    let Some(installed) = Installed::find() else {
        printer.error_text("leash can't find its own executable", Some("check /proc/self/exe"));
        return exit_code::LEASH_FAILED;
    };
    let answer = UpgradeAnswer {
        leash: env!("CARGO_PKG_VERSION"),
        command: installed.upgrade(),
        remark: installed.remark(),
        installed: &installed,
    };
    if args.json {
        printer.json(answer);
        return exit_code::OK;
    }
    printer.say(format_args!("leash {}, installed {}: {}", answer.leash, installed.how(), installed.path.display()));
    printer.say("leash does not change its own file. To upgrade, run:");
    printer.say(format_args!("    {}", answer.command));
    if let Some(remark) = answer.remark {
        printer.say(format_args!("({remark})"));
    }
    exit_code::OK
}

/// What `leash upgrade --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct UpgradeAnswer<'a> {
    /// The version of this leash.
    leash: &'static str,
    /// How and where it was installed.
    installed: &'a Installed,
    /// The command that installs the newest version in the same way.
    command: String,
    /// What the user must know beside the command.
    remark: Option<&'static str>,
}
