//! No circle of imports: at each level of a crate's modules, what one imports does not import it in turn.
//!
//! A module counts as one with everything below it. What a module shares with its own children is not an import; neither is what
//! its tests use.

use std::collections::{BTreeMap, BTreeSet};

use crate::{read, tracked};

/// The names from a crate's root down to a module, or to an item.
type Path = Vec<String>;

/// A crate's modules, each with the paths that it imports or names, from the crate's root.
struct Crate {
    modules: BTreeMap<Path, Vec<Path>>,
}

/// The folders that hold a crate's root.
fn roots() -> BTreeSet<String> {
    let is_root = |name: &str| ["lib.rs", "main.rs"].contains(&name);
    let files = tracked();
    let folders = files
        .iter()
        .filter_map(|file| file.rsplit_once('/'))
        .filter(|(_, name)| is_root(name));
    folders.map(|(folder, _)| folder.to_owned()).collect()
}

impl Crate {
    fn read(root: &str) -> Self {
        let mut files = BTreeMap::new();
        let others: Vec<_> = roots()
            .into_iter()
            .filter(|other| other.starts_with(&format!("{root}/")))
            .collect();
        let is_other = |file: &str| {
            others
                .iter()
                .any(|other| file.starts_with(&format!("{other}/")))
        };
        for file in tracked().into_iter().filter(|file| !is_other(file)) {
            let Some(below) = file
                .strip_prefix(&format!("{root}/"))
                .and_then(|file| file.strip_suffix(".rs"))
            else {
                continue;
            };
            let mut path: Path = below.split('/').map(str::to_owned).collect();
            if ["lib", "main", "mod"].contains(&path.last().map_or("", String::as_str)) {
                path.pop();
            }
            if !path.iter().any(|name| name == "tests") {
                files.insert(path, code(&read(&file)));
            }
        }
        let modules: BTreeSet<Path> = files.keys().cloned().collect();
        let paths = |(at, text): (&Path, &String)| (at.clone(), paths(at, text, &modules));
        Self {
            modules: files.iter().map(paths).collect(),
        }
    }

    /// Returns the module that defines what a path leads to, through what modules on its way import themselves.
    fn defines(&self, path: &[String]) -> Path {
        let mut at = Path::new();
        for (i, name) in path.iter().enumerate() {
            let below: Path = at.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&below) {
                at = below;
                continue;
            }
            let imported = self.modules.get(&at).into_iter().flatten();
            let source = imported.filter(|other| other.len() > 1 && other.last() == Some(name));
            let mut source = source.filter(|other| **other != path[..=i]);
            return source.next().map_or(at, |other| self.defines(other));
        }
        at
    }

    /// Returns, for each level, which of its modules imports which.
    fn levels(&self) -> BTreeMap<Path, BTreeMap<&str, BTreeSet<String>>> {
        let mut levels: BTreeMap<Path, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
        for (from, paths) in &self.modules {
            for to in paths.iter().map(|path| self.defines(path)) {
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
                    let level = levels.entry(from[..shared].to_vec()).or_default();
                    level.entry(one).or_default().insert(other.clone());
                }
            }
        }
        levels
    }
}

/// Returns a file's text without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns every path in the code of the module `at` that leads into its own crate, from the root on.
fn paths(at: &Path, code: &str, modules: &BTreeSet<Path>) -> Vec<Path> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for (i, part) in code.split("use ").enumerate() {
        let begins = i > 0 && code_before(code, i).ends_with(['\n', ' ', ')']);
        match part.split_once(';').filter(|_| begins) {
            Some((tree, after)) => {
                expand("", &tree.replace(char::is_whitespace, " "), &mut found);
                rest.push_str(after);
            }
            None => rest.push_str(part),
        }
    }
    for word in rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        if word.contains("::") {
            found.push(word.to_owned());
        }
    }
    found
        .iter()
        .filter_map(|path| from_root(at, path, modules))
        .collect()
}

/// Returns the code before its `nth` part that follows a `use `.
fn code_before(code: &str, nth: usize) -> &str {
    code.match_indices("use ")
        .nth(nth - 1)
        .map_or("", |(at, _)| if at == 0 { "\n" } else { &code[..at] })
}

/// Takes the tree of a `use` apart into its paths.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let mut depth = 0;
    let mut begin = 0;
    let mut branches = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&tree[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&tree[begin..]);
    for branch in branches
        .into_iter()
        .map(str::trim)
        .filter(|branch| !branch.is_empty())
    {
        match branch.split_once('{') {
            Some((stem, inner)) => {
                let inner = inner.strip_suffix('}').unwrap_or(inner);
                expand(&format!("{prefix}{stem}"), inner, found);
            }
            None => found.push(format!(
                "{prefix}{}",
                branch.split(" as ").next().unwrap_or(branch)
            )),
        }
    }
}

/// Returns a path as it is from the crate's root; `None` where it leads into another crate.
fn from_root(at: &Path, path: &str, modules: &BTreeSet<Path>) -> Option<Path> {
    let mut names: Vec<String> = path
        .split("::")
        .filter(|name| !name.is_empty() && *name != "self" && *name != "*")
        .map(str::to_owned)
        .collect();
    let first = path.split("::").next()?;
    let mut from = at.clone();
    match first {
        "crate" => {
            names.remove(0);
            from.clear();
        }
        "super" => {
            while names.first().is_some_and(|name| name == "super") {
                names.remove(0);
                from.pop();
            }
        }
        "self" => {}
        child => {
            let below: Path = at.iter().cloned().chain([child.to_owned()]).collect();
            modules.contains(&below).then_some(())?;
        }
    }
    from.append(&mut names);
    Some(from)
}

/// Returns modules that import each other in a circle, if there are any.
fn circle(imports: &BTreeMap<&str, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        name: &str,
        imports: &BTreeMap<&str, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|other| other == name) {
            return Some(way[begin..].to_vec());
        }
        if done.contains(name) {
            return None;
        }
        way.push(name.to_owned());
        let found = imports
            .get(name)
            .into_iter()
            .flatten()
            .find_map(|next| walk(next, imports, way, done));
        way.pop();
        done.insert(name.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    imports
        .keys()
        .find_map(|name| walk(name, imports, &mut Vec::new(), &mut done))
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut circles = Vec::new();
    for root in roots() {
        for (level, imports) in Crate::read(&root).levels() {
            let level = [vec![root.clone()], level].concat().join("/");
            let found = circle(&imports);
            circles.extend(found.map(|way| format!("{level}: {}", way.join(" → "))));
        }
    }
    assert!(
        circles.is_empty(),
        "circles of imports:\n{}",
        circles.join("\n")
    );
}

#[test]
fn a_circle_is_found() {
    let file = |path: &str, text: &str| {
        let at: Path = path
            .split('/')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        (at, code(text))
    };
    let crate_of = |files: [(Path, String); 4]| {
        let modules: BTreeSet<Path> = files.iter().map(|(at, _)| at.clone()).collect();
        let paths = |(at, text): (Path, String)| (at.clone(), paths(&at, &text, &modules));
        Crate {
            modules: files.into_iter().map(paths).collect(),
        }
    };
    let root = || file("", "mod a;\nmod b;\npub use a::One;\n");
    let straight = crate_of([
        root(),
        file("a", "use std::io;\nuse super::b::{self, Two};\n"),
        file(
            "b",
            "// super::a::One\nmod c;\nstruct Two;\n#[cfg(test)]\nmod tests {\n    use crate::a::One;\n}\n",
        ),
        file("b/c", "use super::Two;\n"),
    ]);
    assert!(
        straight
            .levels()
            .values()
            .all(|level| circle(level).is_none())
    );
    for import in [
        "use crate::One;",
        "fn f() -> super::super::a::One {}",
        "use crate::{a::{One}};",
    ] {
        let bent = crate_of([
            root(),
            file("a", "use super::b::Two;"),
            file("b", "mod c;"),
            file("b/c", import),
        ]);
        let found: Vec<_> = bent.levels().values().filter_map(circle).collect();
        assert_eq!(found, [["a", "b"]], "{import}");
    }
}
