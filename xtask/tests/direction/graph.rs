//! Which top-level module of a crate uses which, read from the paths that begin with `crate` or `super`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::source::{self, Source, is};

/// The top-level modules of a crate, each with the modules that it uses and the files that do it.
#[derive(Default)]
pub(crate) struct Graph(BTreeMap<String, BTreeMap<String, BTreeSet<PathBuf>>>);

impl Graph {
    pub(crate) fn of(sources: &[Source]) -> Self {
        let root = Root::of(sources);
        let mut graph = Self::default();
        for source in sources {
            let mut seen = |from: &str, name: &str| {
                for to in root.modules_of(name).filter(|to| *to != from) {
                    let files = graph.0.entry(from.to_owned()).or_default().entry(to.to_owned()).or_default();
                    files.insert(source.path.clone());
                }
            };
            scan(source.tokens.clone(), &source::module(&source.path), &mut seen);
        }
        graph
    }

    fn uses(&self, from: &str) -> impl Iterator<Item = &str> {
        self.0.get(from).into_iter().flat_map(|uses| uses.keys()).map(String::as_str)
    }

    /// The shortest way from `from` back to itself, as the modules on it.
    fn way_back<'a>(&'a self, from: &'a str) -> Option<Vec<&'a str>> {
        let mut ways = VecDeque::from([vec![from]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in self.uses(way[way.len() - 1]) {
                if next == from {
                    return Some(way);
                }
                if seen.insert(next) {
                    ways.push_back([&way[..], &[next]].concat());
                }
            }
        }
        None
    }

    /// All modules that `from` uses, directly or through others.
    fn reached<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(self.uses(module).filter(|used| reached.insert(*used)));
        }
        reached
    }

    /// The largest sets of modules in which every module uses every other, directly or through others.
    pub(crate) fn components(&self) -> BTreeSet<BTreeSet<&str>> {
        let modules = || self.0.keys().map(String::as_str);
        let reached: BTreeMap<&str, BTreeSet<&str>> = modules().map(|name| (name, self.reached(name))).collect();
        let is_mutual = |a: &str, b: &str| reached[a].contains(b) && reached[b].contains(a);
        let component = |a| modules().filter(|b| is_mutual(a, b)).collect::<BTreeSet<&str>>();
        modules().map(component).filter(|modules| !modules.is_empty()).collect()
    }

    /// The steps of the shortest cycle through one of `modules`, each with the files that make it.
    pub(crate) fn shortest_cycle(&self, modules: &BTreeSet<&str>) -> Vec<String> {
        let ways = modules.iter().filter_map(|module| self.way_back(module));
        let shortest = ways.min_by_key(Vec::len).expect("each of them is in a cycle");
        let step = |(at, from): (usize, &&str)| {
            let to = shortest[(at + 1) % shortest.len()];
            let files: Vec<String> = self.0[*from][to].iter().map(|file| file.display().to_string()).collect();
            format!("  {from} uses {to}: {}", files.join(", "))
        };
        shortest.iter().enumerate().map(step).collect()
    }
}

/// The names in the root of a crate.
struct Root {
    modules: BTreeSet<String>,
    /// Names that the root imports from a module: `pub use receipt::Receipt` makes `crate::Receipt` a use of `receipt`.
    imported: BTreeMap<String, String>,
}

impl Root {
    fn of(sources: &[Source]) -> Self {
        let mut root = Self { modules: BTreeSet::new(), imported: BTreeMap::new() };
        let mut imports = Vec::new();
        for source in sources.iter().filter(|source| source::module(&source.path).is_empty()) {
            let tokens: Vec<TokenTree> = source.tokens.clone().into_iter().collect();
            for at in 0..tokens.len() {
                if is(&tokens[at], "mod") {
                    root.modules.extend(tokens.get(at + 1).map(ToString::to_string));
                } else if is(&tokens[at], "use") {
                    import(&tokens[at + 1..], None, &mut imports);
                }
            }
        }
        imports.retain(|(_, module)| root.modules.contains(module));
        root.imported.extend(imports);
        root
    }

    /// The modules behind a name in the root. A glob stands for all of them.
    fn modules_of(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.imported.get(name).map_or(name, String::as_str).to_owned();
        self.modules.iter().map(String::as_str).filter(move |module| named == "*" || named == *module)
    }
}

/// Collects the names that one `use` brings in, each with the first module on its path. `first` is that module for a
/// tree in braces.
fn import(tokens: &[TokenTree], first: Option<&str>, found: &mut Vec<(String, String)>) {
    let (mut first, mut last) = (first.map(str::to_owned), None);
    for token in tokens {
        match token {
            TokenTree::Ident(word) if ["crate", "self"].iter().any(|root| word == root) => {}
            TokenTree::Ident(word) => {
                first.get_or_insert_with(|| word.to_string());
                last = Some(word.to_string());
            }
            TokenTree::Group(group) => {
                let tree: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in tree.split(|token| is(token, ",")) {
                    import(branch, first.as_deref(), found);
                }
                return;
            }
            sign if is(sign, ";") => break,
            _ => {}
        }
    }
    found.extend(last.zip(first));
}

/// Reports every use of a name in the root of the crate by a module that is not the root, as `(module, name)`.
fn scan(tokens: TokenStream, module: &[String], seen: &mut impl FnMut(&str, &str)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match (token, module.first()) {
            (TokenTree::Group(group), _) => {
                // The body of `mod name { .. }` is one level deeper.
                let inner =
                    at.checked_sub(2).filter(|before| is(&tokens[*before], "mod")).map(|_| tokens[at - 1].to_string());
                scan(group.stream(), &[module, inner.as_slice()].concat(), seen);
            }
            (_, Some(top)) => follow(&tokens[at..], module.len(), &mut |name| seen(top, name)),
            _ => {}
        }
    }
}

/// Follows a path that begins with `crate` or `super` in a module at `depth`, and reports the name that it finds in the
/// root of the crate. A tree in braces has several paths.
fn follow(path: &[TokenTree], depth: usize, found: &mut impl FnMut(&str)) {
    let depth = match path.first() {
        Some(token) if is(token, "crate") => 0,
        Some(token) if is(token, "super") => depth.saturating_sub(1),
        _ => return,
    };
    let [_, one, two, next, ..] = path else { return };
    if !is(one, ":") || !is(two, ":") {
        return;
    }
    match next {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            let tree: Vec<TokenTree> = group.stream().into_iter().collect();
            for branch in tree.split(|token| is(token, ",")) {
                match branch.first() {
                    Some(token) if is(token, "super") => follow(branch, depth, found),
                    Some(token) if depth == 0 => found(&token.to_string()),
                    _ => {}
                }
            }
        }
        token if is(token, "super") => follow(&path[3..], depth, found),
        token if depth == 0 => found(&token.to_string()),
        _ => {}
    }
}
