//! How much a core keeps, so that unbounded growth shows. It is read from what `Debug` says about the core: no collection is left
//! out because nobody thought of it.

use crate::Core;

/// How much there is in one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The fields that lead to it.
    pub what: String,
    /// How many there are.
    pub count: usize,
    /// Whether each binding may have one of these. All other kinds are empty when nothing is under way.
    pub of_bindings: bool,
}

/// Of what follows, each binding may have one.
const OF_BINDINGS: [&str; 4] = [
    "registry.tables.bindings.",
    "registry.tables.interfaces.all",
    "registry.seeking.awaited",
    "deadlines of bindings",
];

/// What follows lasts, whatever bindings there are; each has a bound of its own.
const LASTING: [&str; 13] = [
    "registry.tables.lans",
    "registry.tables.departed",
    "registry.tables.profiles",
    "registry.tables.out.counts",
    "registry.tables.out.journal",
    "registry.turns.releases",
    "registry.adoptions",
    "registry.past",
    "registry.fallbacks",
    "docker.pools",
    "docker.networks",
    "docker.strays",
    "docker.endpoints.by_id",
];

impl Core {
    /// Returns how much is kept of each kind whose size depends on what was asked.
    pub fn kept(&self) -> Vec<Kept> {
        let text = format!("{self:?}");
        let mut all = Vec::new();
        Reader(&text).value("", &mut all);
        let begins = |what: &str, with: &[&str]| with.iter().any(|it| what.starts_with(it));
        let kept = |(what, count): (String, usize)| Kept {
            of_bindings: begins(&what, &OF_BINDINGS),
            what,
            count,
        };
        let kept = all.into_iter().map(kept);
        kept.filter(|it| it.of_bindings || !begins(&it.what, &LASTING))
            .collect()
    }
}

/// What has not been read yet of a text that `Debug` wrote.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    /// Reads a value, and counts what the collections have to which its fields lead.
    fn value(&mut self, path: &str, found: &mut Vec<(String, usize)>) {
        let name = self.0.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (name, rest) = self.0.split_at(name.unwrap_or(self.0.len()));
        if let Some(rest) = rest.strip_prefix(" { ").filter(|_| !name.is_empty()) {
            self.0 = rest;
            while !self.0.starts_with('}') {
                let (field, rest) = self.0.split_once(": ").expect("a field");
                self.0 = rest;
                let below = [path, field].join(if path.is_empty() { "" } else { "." });
                self.value(&below, found);
                self.0 = self.0.trim_start_matches([',', ' ']);
            }
            self.0 = &self.0[1..];
        } else if let Some(rest) = rest.strip_prefix('(') {
            self.0 = rest;
            while !self.0.starts_with(')') {
                self.value(path, found);
                self.0 = self.0.trim_start_matches([',', ' ']);
            }
            self.0 = &self.0[1..];
        } else if name.is_empty() && rest.starts_with(['[', '{']) {
            let all = self.collection();
            // Each deadline is in two collections. There are as many doors above as are asked, and adoptions have a call each.
            let counts = |it: &&&str| !it.contains("by: Adoption") && !it.starts_with("Above(");
            let all: Vec<_> = all.iter().filter(counts).collect();
            if path.ends_with("timers.by_key") {
                let of = all.iter().filter(|it| it.starts_with("Binding(")).count();
                found.push(("deadlines of bindings".to_owned(), of));
            } else if !path.ends_with("timers.by_time") {
                found.push((path.to_owned(), all.len()));
            }
        } else {
            self.skip();
        }
    }

    /// Reads a collection, and returns its elements.
    fn collection(&mut self) -> Vec<&'a str> {
        self.0 = &self.0[1..];
        let mut all = Vec::new();
        while !self.0.starts_with([']', '}']) {
            all.push(self.skip());
            self.0 = self.0.trim_start_matches([',', ' ']);
        }
        self.0 = &self.0[1..];
        all
    }

    /// Reads on to the end of a value, and returns it.
    fn skip(&mut self) -> &'a str {
        let (mut depth, mut quote, mut escaped) = (0_usize, false, false);
        let end = self.0.char_indices().find(|(_, c)| {
            match c {
                _ if escaped => escaped = false,
                '\\' if quote => escaped = true,
                '"' => quote = !quote,
                _ if quote => {}
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' | ',' if depth == 0 => return true,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            false
        });
        let (value, rest) = self.0.split_at(end.map_or(self.0.len(), |(at, _)| at));
        self.0 = rest;
        value
    }
}
