//! The programs that `cargo xtask setup` installed for the tests: SDKs, the conformance suite, and their runtimes.

use std::env;
use std::path::{Path, PathBuf};

/// The installed packages.
#[derive(Clone, Debug)]
pub struct Deps(PathBuf);

impl Deps {
    /// Finds them. The error says what to do. With `LEASH_DEPS` set, a test fails if something is missing.
    pub fn find() -> Result<Self, &'static str> {
        if let Some(dir) = env::var_os("LEASH_DEPS") {
            return Ok(Self(dir.into()));
        }
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/deps");
        // This file is written last by the setup.
        match dir.join("conformance/.made-by").exists() {
            true => Ok(Self(dir)),
            false => Err("the SDKs are not installed; `cargo xtask setup` does it"),
        }
    }

    /// The directory of the TypeScript SDKs and `server-everything`. Programs that need them are started here.
    pub fn npm(&self) -> PathBuf {
        self.0.join("npm")
    }

    /// The script of pnpm, for any Node.
    pub fn pnpm(&self) -> PathBuf {
        self.0.join("managers/node_modules/pnpm/bin/pnpm.cjs")
    }

    /// The script of yarn, for any Node.
    pub fn yarn(&self) -> PathBuf {
        self.0.join("managers/node_modules/@yarnpkg/cli-dist/bin/yarn.js")
    }

    /// The program uv.
    pub fn uv(&self) -> PathBuf {
        self.0.join("uv/bin/uv")
    }

    /// The Python with the current SDK.
    pub fn python(&self) -> PathBuf {
        self.0.join("py/bin/python")
    }

    /// The Python with the SDK of the 1.x line.
    pub fn old_python(&self) -> PathBuf {
        self.0.join("py-old/bin/python")
    }

    /// The directory of an unpacked valgrind, if the machine's own is too old.
    pub fn valgrind(&self) -> PathBuf {
        self.0.join("valgrind")
    }

    /// A Node 22, which the conformance suite needs.
    pub fn node_22(&self) -> PathBuf {
        self.0.join("conformance/node_modules/.bin/node")
    }

    /// The program of the conformance suite, for that Node.
    pub fn conformance(&self) -> PathBuf {
        self.0.join("conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    /// Claude Code. Its package contains a native program for this architecture.
    pub fn claude(&self) -> PathBuf {
        let kind = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        self.0.join(format!("hosts/node_modules/@anthropic-ai/claude-code-linux-{kind}/claude"))
    }

    /// Codex CLI.
    pub fn codex(&self) -> PathBuf {
        self.0.join("hosts/node_modules/.bin/codex")
    }

    /// Gemini CLI.
    pub fn gemini(&self) -> PathBuf {
        self.0.join("hosts/node_modules/.bin/gemini")
    }

    /// The directory of the Copilot SDK and of pyright.
    pub fn sdk(&self) -> PathBuf {
        self.0.join("sdk")
    }

    /// The script of the MCP Inspector, for [`Deps::node_22`]. The error says that it is not installed.
    pub fn inspector(&self) -> Result<PathBuf, &'static str> {
        let dir = self.0.join("inspector");
        if !dir.exists() && env::var_os("LEASH_DEPS").is_none() {
            return Err("the Inspector is not installed; `cargo xtask setup` does it");
        }
        Ok(dir.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
    }

    /// The directory of Playwright, for a machine that has Chromium. The error says what is not installed.
    pub fn browser(&self) -> Result<PathBuf, &'static str> {
        let dir = self.0.join("browser");
        let is_here = dir.exists() && Path::new("/usr/bin/chromium").exists();
        if !is_here && env::var_os("LEASH_DEPS").is_none() {
            return Err("Chromium or Playwright is not installed; `cargo xtask setup` does it");
        }
        Ok(dir)
    }

    /// The script of `server-everything`, for any Node.
    pub fn everything(&self) -> PathBuf {
        self.0.join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
    }
}
