//! The commands on a page: the lines after `$` in its console blocks, each with the output that follows.

use super::compare::is_match;

/// The comment in front of a block that is not executed; the reason follows.
const NOT_EXECUTED: &str = "<!-- not executed: ";

/// A page of Markdown.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// In the order of the page.
    pub commands: Vec<Command>,
}

/// One command on a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// The number of its line.
    pub line: usize,
    /// What follows `$`.
    pub text: String,
    /// The lines that follow the command.
    pub expected: String,
}

impl Page {
    /// Finds the commands. The error is the number of a line, and its mistake.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut commands: Vec<Command> = Vec::new();
        let (mut is_skipped, mut lines) = (false, (1..).zip(text.lines()));
        while let Some((number, line)) = lines.next() {
            if line == "```console" {
                let block = lines.by_ref().take_while(|(_, line)| *line != "```");
                let block = Self::block(number, block)?;
                if !is_skipped {
                    commands.extend(block);
                }
                is_skipped = false;
            } else if line.trim_start().starts_with("```console") {
                return Err(format!("{number}: a console block begins with ```console and nothing else"));
            } else if line.trim_start().starts_with("```") {
                let end = line.find(|sign| sign != '`' && sign != ' ').map_or(line, |at| line[..at].trim_end());
                lines.by_ref().take_while(|(_, line)| *line != end).for_each(drop);
                is_skipped = false;
            } else if let Some(reason) = line.strip_prefix(NOT_EXECUTED) {
                let reason = reason.strip_suffix(" -->").unwrap_or_default();
                is_skipped = true;
                if reason.is_empty() {
                    return Err(format!("{number}: there is no reason"));
                }
            } else if !line.is_empty() && is_skipped {
                return Err(format!("{number}: the comment before it has no block"));
            }
        }
        if commands.is_empty() { Err("1: there is no command".to_owned()) } else { Ok(Self { commands }) }
    }

    /// Compares what the commands printed with the page. `[..]` stands for any characters within a line, and a line `...`
    /// for any lines.
    ///
    /// # Panics
    /// If a command printed something else, or was not played.
    pub fn check(&self, document: &str, printed: &[String]) {
        let complaints = self.commands.iter().zip(printed).filter_map(|(command, printed)| command.complaint(printed));
        let complaints: Vec<String> = complaints.map(|complaint| format!("{document}:{complaint}")).collect();
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
        assert_eq!(printed.len(), self.commands.len(), "the shell ended before the page: {printed:?}");
    }

    fn block<'a>(start: usize, lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Vec<Command>, String> {
        let mut commands: Vec<Command> = Vec::new();
        for (number, line) in lines {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(text), _) => {
                    commands.push(Command { line: number, text: text.to_owned(), expected: String::new() });
                }
                (None, Some(command)) => command.expected.extend([line, "\n"]),
                (None, None) => return Err(format!("{number}: output without a command")),
            }
        }
        if commands.is_empty() { Err(format!("{start}: a block without a command")) } else { Ok(commands) }
    }
}

impl Command {
    /// The difference between the page and what the command printed.
    fn complaint(&self, printed: &str) -> Option<String> {
        let Self { line, text, expected } = self;
        let is_as_expected = is_match(expected, printed);
        (!is_as_expected).then(|| format!("{line}: `{text}` should print:\n{expected}and printed:\n{printed}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_output_is_a_complaint() {
        let page = Page::parse("```console\n$ leash history\nENDED [..] FATE\n```\n").expect("a page");
        assert_eq!(page.commands[0].complaint("ENDED  SERVER  FATE\n"), None);
        assert_eq!(
            page.commands[0].complaint("ENDED  SERVER\n").as_deref(),
            Some("2: `leash history` should print:\nENDED [..] FATE\nand printed:\nENDED  SERVER\n"),
        );
    }

    #[test]
    fn commands_of_console_blocks_are_found() {
        let text = "# Page\n\n```console\n$ one\na\n\nb\n$ two\n```\n\n```\n$ no\n```\nText `$ no`.\n\n```json\n{}\n```\n\n\
            <!-- not executed: it needs the network -->\n\n```console\n$ no\n```\n\n```console\n$ three &\n...\n```\n";
        let command = |line, text: &str, expected: &str| Command { line, text: text.into(), expected: expected.into() };
        let commands = vec![command(4, "one", "a\n\nb\n"), command(8, "two", ""), command(27, "three &", "...\n")];
        assert_eq!(Page::parse(text), Ok(Page { commands }));
    }

    #[test]
    fn mistakes_of_a_page_are_found() {
        for (text, mistake) in [
            ("Text.\n", "1: there is no command"),
            ("```console\n```\n", "1: a block without a command"),
            ("  ```console\n$ one\n```\n", "1: a console block begins with ```console and nothing else"),
            ("```console\nout\n$ one\n```\n", "2: output without a command"),
            ("<!-- not executed:  -->\n\n```console\n$ one\n```\n", "1: there is no reason"),
            ("<!-- not executed: why -->\nText.\n```console\n$ one\n```\n", "2: the comment before it has no block"),
        ] {
            assert_eq!(Page::parse(text), Err(mistake.to_owned()), "{text}");
        }
    }
}
