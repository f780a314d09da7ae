//! Checks of our own habits: which crate and module imports which, how large the core is, what the root holds, that the documents
//! are whole.

mod circles;
mod documents;
mod prometheus;
mod ratchet;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the root")
        .to_owned()
}

/// Every file that git tracks or would track, from the root.
fn tracked() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("file names are UTF-8");
    text.lines()
        .filter(|file| root().join(file).exists())
        .map(str::to_owned)
        .collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The workspace's crates that a manifest depends on, in any section, without the beginning of their names.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = read(manifest);
    let names = text
        .lines()
        .filter(|line| line.contains('='))
        .filter_map(|line| line.split(['.', ' ', '=']).next());
    let is_ours = |name: &str| name == "leasehold" || name == "netns-fixtures";
    names
        .filter_map(|name| match is_ours(name) {
            true => Some(name.trim_start_matches("netns-")),
            false => name.strip_prefix("leasehold-"),
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_import_one_way() {
    for (manifest, allowed) in [
        ("daemon/range", ""),
        ("daemon/core", "range"),
        ("daemon/api", "range"),
        ("netns-fixtures", ""),
        ("shim", "api host-local"),
        ("daemon/host-local", "api range"),
        ("daemon", "api core host-local"),
        ("tests", "api core host-local range fixtures"),
    ] {
        let allowed = allowed.split_whitespace().map(str::to_owned).collect();
        let found = dependencies(&format!("{manifest}/Cargo.toml"));
        assert_eq!(found, allowed, "{manifest}");
    }
}

#[test]
fn the_core_touches_nothing() {
    let forbidden = "tokio std::fs std::net::Udp std::net::Tcp std::os std::process std::thread std::env SystemTime \
        std::time::Instant nix:: socket2 Rng::new() rand::random fastrand::u";
    let pure = ["daemon/core/src/", "daemon/range/src/"];
    for file in tracked()
        .iter()
        .filter(|file| pure.iter().any(|pure| file.starts_with(pure)) && file.ends_with(".rs"))
    {
        let text = read(file);
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for word in forbidden.split(' ') {
                assert!(!line.contains(word), "{file} touches the world: {line}");
            }
        }
    }
}

/// Cargo builds the daemon with the features that any dependency asks for, but not with those of tests.
#[test]
fn only_tests_can_cut_out_a_rule() {
    for manifest in tracked().iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = read(manifest);
        let of_product = text.split("[dev-dependencies]").next().unwrap_or_default();
        assert!(
            !of_product.contains("\"testbed\""),
            "{manifest} builds the core with its testbed"
        );
    }
}

/// What a door wants of a lease is data that comes with it. Nothing below asks which door that was.
#[test]
fn nothing_below_docker_asks_whether_a_lease_is_of_docker() {
    let may =
        ["docker/", "identity.rs", "network.rs"].map(|file| format!("daemon/core/src/{file}"));
    let is_below = |file: &String| {
        file.starts_with("daemon/core/src/")
            && !file.contains("/tests")
            && !may.iter().any(|may| file.starts_with(may))
    };
    for file in tracked().iter().filter(|file| is_below(file)) {
        assert!(
            !read(file).contains("Attachment::Docker"),
            "{file} asks for the door"
        );
    }
}

/// A method for what can only happen in one life of a binding belongs to that life: only who may be in any life is asked here.
#[test]
fn a_binding_has_one_impl_and_one_dispatch_over_its_lives() {
    let files = tracked()
        .into_iter()
        .filter(|file| file.starts_with("daemon/core/src/binding/") && file.ends_with(".rs"));
    let texts: Vec<_> = files.map(|file| (read(&file), file)).collect();
    let places = |line: &str| -> Vec<&str> {
        let has = |text: &str| text.lines().any(|own| own.trim_start().starts_with(line));
        texts
            .iter()
            .filter(|(text, _)| has(text))
            .map(|(_, file)| file.as_str())
            .collect()
    };
    assert_eq!(places("impl Binding"), ["daemon/core/src/binding/mod.rs"]);
    assert_eq!(
        places("pub(super) fn get_mut(&mut self) -> &mut dyn Living"),
        ["daemon/core/src/binding/life.rs"]
    );
    for (text, file) in texts
        .iter()
        .filter(|(_, file)| !file.ends_with("binding/mod.rs"))
    {
        assert!(
            !text.contains("self.life"),
            "{file} asks which life it is in"
        );
    }
}

/// The compiler denies unsafe code where no file allows it, and clippy denies it without its reason.
#[test]
fn unsafe_code_lives_in_net_only() {
    let elsewhere = |file: &&String| {
        file.ends_with(".rs")
            && !["daemon/src/net/", "tests/tidy/"]
                .iter()
                .any(|dir| file.starts_with(dir))
    };
    for file in tracked().iter().filter(elsewhere) {
        assert!(
            !read(file).contains("(unsafe_code)"),
            "{file} allows unsafe code"
        );
    }
}

#[test]
fn the_root_holds_what_it_should() {
    let allowed = "Cargo.toml Cargo.lock README.md LICENSE daemon shim tests netns-fixtures";
    let allowed: BTreeSet<_> = allowed.split(' ').collect();
    for file in tracked() {
        let top = file.split('/').next().unwrap_or_default();
        assert!(
            top.starts_with('.') || allowed.contains(top),
            "{file} has no place in the root"
        );
    }
}

/// How many lines the longest file has today, of the product and of its tests. Both may only fall.
const LONGEST_SOURCE: usize = 730;
const LONGEST_TEST: usize = 920;

#[test]
fn no_file_is_too_long_to_read() {
    for file in tracked().iter().filter(|file| file.ends_with(".rs")) {
        let is_test = file.contains("tests") || file.contains("testbed");
        let longest = if is_test {
            LONGEST_TEST
        } else {
            LONGEST_SOURCE
        };
        let lines = read(file).lines().count();
        assert!(lines <= longest, "{file} has {lines} lines: split it");
    }
}

/// How long a test's name may be: whoever reads a list of failures reads nothing else.
const LONGEST_NAME: usize = 54;

#[test]
fn every_test_has_a_name_of_at_most_54_characters() {
    let mut long = Vec::new();
    for file in tracked().iter().filter(|file| file.ends_with(".rs")) {
        for rest in read(file).split("fn ").skip(1) {
            let name: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            if name.len() > LONGEST_NAME {
                long.push(format!("{file}: {name}"));
            }
        }
    }
    assert_eq!(long, [""; 0], "say it shorter: subject, verb, object");
}
