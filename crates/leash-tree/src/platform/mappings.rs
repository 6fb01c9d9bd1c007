//! The parts of our own address space that are unchanged pages of files.

use std::ops::Range;

use super::linux;
use super::proc::read_small;

/// Pages of a read-only file mapping that have not changed since they were mapped. If the kernel reads them again, they
/// are the same.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnchangedPages(Range<usize>);

impl UnchangedPages {
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.clone()
    }
}

/// Takes the program out of our address space, for a process that will wait long: most of the program ran once, at the
/// start. Pages that are needed again come back from the page cache, 64 kB within microseconds.
pub fn give_back_program() {
    let smaps = read_small("/proc/self/smaps").unwrap_or_default();
    unchanged(&smaps).iter().for_each(linux::give_back_pages);
}

fn unchanged(smaps: &str) -> Vec<UnchangedPages> {
    let mut found = Vec::new();
    let mut open = None;
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            open = Some(mapping).filter(Mapping::is_fixed_file);
        } else if let Some(size) = line.strip_prefix("Anonymous:") {
            // The linker wrote to some pages before it made them read-only. The file does not have those changes.
            let mapping = open.take().filter(|_| size.trim() == "0 kB");
            found.extend(mapping.map(|mapping| UnchangedPages(mapping.range)));
        }
    }
    found
}

/// The first line of a mapping.
struct Mapping<'a> {
    range: Range<usize>,
    access: &'a str,
    inode: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let range = number(start)?..number(end)?;
        Some(Mapping { range, access: words.next()?, inode: words.nth(2)? })
    }

    fn is_fixed_file(&self) -> bool {
        self.inode != "0" && matches!(self.access, "r-xp" | "r--p")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_pages_of_files_are_given_back() {
        let smaps = "\
1000-3000 r--p 00000000 fe:00 77   /bin/leash
Rss: 8 kB
Anonymous:             0 kB
3000-4000 r-xp 00002000 fe:00 77   /bin/leash
Anonymous:             0 kB
4000-5000 r--p 00003000 fe:00 77   /bin/leash
Anonymous:             4 kB
5000-6000 rw-p 00004000 fe:00 77   /bin/leash
Anonymous:             0 kB
6000-7000 r--p 00000000 00:00 0
Anonymous:             0 kB
7000-8000 r-xp 00000000 00:00 0    [vdso]
Anonymous:             0 kB
8000-9000 r--s 00000000 fe:00 78   /shared
Anonymous:             0 kB
9000-a000 r--p 00000000 fe:00 79   /cut/off
";
        assert_eq!(unchanged(smaps), [UnchangedPages(0x1000..0x3000), UnchangedPages(0x3000..0x4000)]);
        assert_eq!(unchanged(""), []);
    }

    #[test]
    fn the_program_runs_on_after_its_pages_are_given_back() {
        let table = ["a constant", "of the program"];
        for _ in 0..3 {
            give_back_program();
            assert_eq!(format!("{table:?}"), r#"["a constant", "of the program"]"#);
        }
    }
}
