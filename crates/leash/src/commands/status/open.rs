//! `leash status --open`: prints the link to the page, and opens it.

use std::env;
use std::process::{Command, Stdio};

use leash_model::view::PageLinkView;

use crate::exit_code;
use crate::output::printer::{Printer, span};
use crate::output::text::Text;

/// The program that opens a URL with the user's browser.
const OPENER: &str = "xdg-open";

/// Prints the link, and opens it if there is a display.
pub(super) fn show(printer: Printer, link: &PageLinkView) -> u8 {
    let mut text = Text::default();
    text.line(&link.url);
    printer.data(&text);
    let is_opened = has_display() && open(&link.url);
    let what = if is_opened { "opening it in your browser" } else { "open it in a browser on this machine" };
    printer.note(format!("{what}; it works once, within {}", span(link.expires_ms)));
    exit_code::OK
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Starts the browser. Other users see the link in the list of processes, but the gateway serves the page only to
/// processes of this user.
#[expect(clippy::disallowed_methods, reason = "the browser belongs to the user, who ends it")]
fn open(url: &str) -> bool {
    let mut command = Command::new(OPENER);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
