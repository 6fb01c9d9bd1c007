//! The two eras of MCP: legacy, with a handshake and sessions, and modern, without either.

use hyper::Method;

use super::envelope::Message;

/// The rules that a request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Up to 2025-11-25: `initialize` first, then optionally a session.
    Legacy,
    /// From 2026-07-28: every request is independent.
    Modern,
}

/// The versions that begin with a handshake, oldest first.
pub const LEGACY_VERSIONS: [&str; 5] = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", LATEST_LEGACY];
/// The first version without sessions.
pub const MODERN: &str = "2026-07-28";
/// The version of a legacy request without a version header, by the specification.
pub const DEFAULT_LEGACY: &str = "2025-03-26";
/// The last version with sessions.
pub const LATEST_LEGACY: &str = "2025-11-25";

/// Decides the era of an HTTP request, in the order of the Rust and TypeScript SDKs. The caller must look for a known
/// session first, which takes precedence: some servers agree on a modern version in a handshake and then use sessions.
pub fn classify(http_method: &Method, version_header: Option<&str>, message: Option<&Message<'_>>) -> Era {
    // The modern era has no GET and no DELETE.
    if http_method != Method::POST {
        return Era::Legacy;
    }
    let envelopes = message.map(Message::envelopes).unwrap_or_default();
    // The handshake is legacy whatever version it names: rmcp falls back to it and names a modern version.
    if envelopes.iter().any(|envelope| envelope.method.as_deref() == Some("initialize")) {
        return Era::Legacy;
    }
    let claimed = envelopes.iter().any(|envelope| envelope.method.is_some() && envelope.meta().claims_modern);
    if claimed || version_header.is_some_and(is_modern_version) { Era::Modern } else { Era::Legacy }
}

/// True if a version begins with a handshake.
pub fn is_legacy_version(version: &str) -> bool {
    LEGACY_VERSIONS.contains(&version)
}

/// True if a version has no sessions: a date from [`MODERN`] on, or a text that is not a date, as for drafts. An
/// earlier date that is not a known version belongs to neither era.
pub fn is_modern_version(version: &str) -> bool {
    if is_date(version) { version >= MODERN } else { !version.trim().is_empty() }
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
