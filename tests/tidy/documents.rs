//! The documents against the code: the map names every folder, and every key, flag, variable, event and capability of the code
//! is in its table, and no other is. Everything that a document refers to, and every step of its walks, exists.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use leasehold_core::rules::{RULES, Stated};

use crate::{read, root, tracked};

const ARCHITECTURE: &str = "daemon/docs/architecture.md";
const CHANGELOG: &str = "daemon/docs/changelog.md";
const CNI: &str = "daemon/docs/cni.md";
const DOCKER: &str = "daemon/docs/docker.md";
const SCENARIOS: &str = "daemon/docs/docker-scenarios.md";
const KUBERNETES: &str = "daemon/docs/kubernetes.md";
const METRICS: &str = "daemon/docs/metrics.md";
const OPERATIONS: &str = "daemon/docs/operations.md";
const README: &str = "README.md";
const REFERENCE: &str = "daemon/docs/reference.md";

/// Returns what stands in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns what stands in backticks in the first column of the table under a document's heading.
fn rows(document: &str, heading: &str) -> BTreeSet<String> {
    let text = read(document);
    let (_, section) = text
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("{document}: no {heading}"));
    let lines = section
        .lines()
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with("| `"));
    lines
        .flat_map(|line| quoted(line.split('|').nth(1).unwrap_or_default()))
        .collect()
}

/// Returns a file's text up to its tests.
fn code(file: &str) -> String {
    read(file)
        .split("#[cfg(test)]")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Returns what stands in quotes right behind each `before`.
fn behind<'a>(code: &'a str, before: &'a str) -> impl Iterator<Item = String> + 'a {
    code.split(before)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}

/// Returns the strings of the first list behind `before`.
fn list(code: &str, before: &str) -> BTreeSet<String> {
    let (_, rest) = code
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before}"));
    let list = rest
        .split_once("[\n")
        .or(rest.split_once("[\""))
        .and_then(|(_, rest)| rest.split_once(']'));
    list.unwrap_or_default()
        .0
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns what one set has and the other lacks.
fn missing(of: &BTreeSet<String>, from: &BTreeSet<String>) -> Vec<String> {
    of.difference(from).cloned().collect()
}

fn same(documented: &BTreeSet<String>, known: &BTreeSet<String>, document: &str) {
    assert!(
        !known.is_empty(),
        "the code's own list for {document} was not found"
    );
    let seen = missing(known, documented);
    assert_eq!(seen, [""; 0], "{document} lacks these");
    assert_eq!(
        missing(documented, known),
        [""; 0],
        "{document} has these, which the code does not know"
    );
}

#[test]
fn the_map_names_every_folder_of_code() {
    let map = read(ARCHITECTURE);
    let folders: BTreeSet<String> = tracked()
        .iter()
        .filter(|file| file.ends_with(".rs") && !file.starts_with('.'))
        .filter_map(|file| file.rsplit_once('/').map(|(folder, _)| folder.to_owned()))
        .collect();
    for folder in folders {
        // A folder that splits one module up, or holds a crate's or module's tests, is found under what it belongs to.
        let splits_a_module = root().join(format!("{folder}.rs")).exists();
        let holds_tests = folder
            .split_once('/')
            .is_some_and(|(_, below)| below.split('/').any(|part| part == "tests"));
        let place = folder.strip_suffix("/src").unwrap_or(&folder);
        let named = [folder.as_str(), place]
            .iter()
            .any(|name| map.contains(&format!("`{name}`")));
        assert!(
            named || splits_a_module || holds_tests,
            "the map in {ARCHITECTURE} lacks {folder}"
        );
    }
}

#[test]
fn every_key_of_ipam_is_documented() {
    let code = code("daemon/api/src/cni/ipam.rs");
    same(
        &rows(CNI, "## Keys of `ipam`"),
        &list(&code, "IPAM_KEYS: "),
        CNI,
    );
    let of = |reader: &str| {
        let body = code
            .split_once(reader)
            .and_then(|(_, rest)| rest.split_once("\n    }\n"))
            .expect(reader)
            .0;
        let calls = [
            "entry.read(\"",
            ".require(\"",
            "servers.list(\"",
            "said(\"",
            "fallback.lists(\"",
            "fallback.read(\"",
        ];
        calls.iter().flat_map(|call| behind(body, call)).collect()
    };
    for (heading, reader) in [
        ("### `request`", "impl RequestList {"),
        ("### `provide`", "impl Provide {"),
        ("### `routes`", "pub(super) fn route("),
        ("### `servers`", "impl Servers {"),
        ("### `fallback`", "impl Fallback {"),
    ] {
        same(&rows(CNI, heading), &of(reader), CNI);
    }
}

#[test]
fn every_key_of_host_local_is_documented() {
    let code = code("daemon/api/src/cni/host_local.rs");
    same(
        &rows(CNI, "### Keys of `ipam` for local ranges"),
        &list(&code, "HOST_LOCAL_KEYS: "),
        CNI,
    );
}

#[test]
fn every_option_of_a_network_of_dockers_is_documented() {
    let known = |file, before| {
        let code = code(file);
        let (_, known) = code.split_once(before).expect("the options there are");
        let known = known.split_once(';').expect("their end").0;
        known
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let of_leases: BTreeSet<String> = known(
        "daemon/src/http/docker/lease.rs",
        "const KNOWN: [&str; 8] =",
    );
    let documented = rows(DOCKER, "## Options");
    same(
        &documented,
        &(&of_leases | &["parent".to_owned()].into()),
        DOCKER,
    );
    let mut of_networks = &rows(DOCKER, "## The network driver") | &documented;
    // The second table there.
    for driver in ["null", "leasehold", "leasehold-ipvlan"] {
        assert!(of_networks.remove(driver), "{driver}");
    }
    let own = known("daemon/src/http/docker/wiring.rs", "const OWN: [&str; 8] =");
    same(&of_networks, &(&own | &of_leases), DOCKER);
}

#[test]
fn every_other_part_of_a_configuration_is_documented() {
    let code = code("daemon/api/src/cni/config.rs");
    let (_, body) = code
        .split_once("pub struct Config {")
        .expect("the type of a configuration");
    let body = body.split_once("\n}").expect("its end").0;
    let mut known: BTreeSet<String> = behind(body, "rename = \"").collect();
    let mut renamed = false;
    for line in body.lines().map(str::trim) {
        let field = line
            .strip_prefix("pub ")
            .unwrap_or(line)
            .split_once(": ")
            .map(|(name, _)| name);
        match field.filter(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        }) {
            Some(name) if !renamed => drop(known.insert(camel_case(name))),
            Some(_) => renamed = false,
            None => renamed |= line.contains("rename = "),
        }
    }
    // Their parts have lines of their own.
    for (whole, parts) in [
        ("args", &["args.cni.ips"][..]),
        ("runtimeConfig", &["runtimeConfig.ips", "runtimeConfig.mac"]),
    ] {
        assert!(known.remove(whole), "{known:?}");
        known.extend(parts.iter().map(|part| (*part).to_owned()));
    }
    known.remove("ipam");
    let args = ["IP", "CNI_ARGS", "K8S_POD_NAMESPACE", "K8S_POD_NAME"];
    known.extend(args.map(str::to_owned));
    same(
        &rows(CNI, "## Other parts of the configuration"),
        &known,
        CNI,
    );
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + &part[..1].to_uppercase() + &part[1..]
    })
}

/// Returns the flags of a command's arguments, those of what is flattened into them too.
fn flags(code: &str, arguments: &str) -> BTreeSet<String> {
    let body = code
        .split_once(&format!("struct {arguments} {{"))
        .and_then(|(_, rest)| rest.split_once("\n}"));
    let body = body.expect("the arguments").0;
    let fields = body.split("#[arg(").skip(1).filter_map(|field| {
        let (attribute, rest) = field.split_once("pub(crate) ")?;
        let name = rest.split_once(':')?.0;
        // What is neither long nor short has only a place.
        let is_flag = attribute
            .split([',', '(', ')', '\n', ' '])
            .any(|word| word == "long");
        let said = attribute
            .split_once("long = \"")
            .and_then(|(_, rest)| Some(rest.split_once('"')?.0));
        let long = said.map_or_else(|| name.replace('_', "-"), str::to_owned);
        let flag = if is_flag {
            format!("--{long}")
        } else {
            name.to_uppercase()
        };
        let short = attribute
            .contains("short")
            .then(|| format!("-{}", &rest[..1]));
        Some([Some(flag), short])
    });
    let flattened = body
        .split("#[command(flatten)]")
        .skip(1)
        .filter_map(|field| {
            let (_, kind) = field.split_once(": ")?;
            Some(flags(code, kind.split_once(',')?.0))
        });
    fields
        .flatten()
        .flatten()
        .chain(flattened.flatten())
        .collect()
}

#[test]
fn every_flag_and_variable_is_documented() {
    let code = code("daemon/src/cli/args.rs");
    for (arguments, heading) in [
        ("DaemonArgs", "## `leasehold daemon`"),
        ("ListArgs", "## `leasehold list`"),
        ("ShowArgs", "## `leasehold show`"),
        ("StatusArgs", "## `leasehold status`"),
        (
            "ReleaseArgs",
            "## `leasehold renew` and `leasehold release`",
        ),
        ("EventsArgs", "## `leasehold events`"),
        ("DoctorArgs", "## `leasehold doctor`"),
        ("CaptureArgs", "## `leasehold capture`"),
        ("LogArgs", "## `leasehold log`"),
        ("ProbeArgs", "## `leasehold probe`"),
        ("InstallArgs", "## `leasehold install`"),
        ("UninstallArgs", "## `leasehold uninstall`"),
    ] {
        same(
            &rows(REFERENCE, heading),
            &flags(&code, arguments),
            REFERENCE,
        );
    }
    let variables: BTreeSet<String> = behind(&code, "env = \"").collect();
    assert!(variables.len() > 5, "{variables:?}");
    let found = missing(&variables, &quoted(&read(REFERENCE)));
    assert_eq!(found, [""; 0], "{REFERENCE} lacks these");
}

#[test]
fn every_flag_of_the_shim_is_documented() {
    let code = code("shim/src/flags.rs");
    let usage = code
        .split_once("Usage of daemon:")
        .and_then(|(_, rest)| rest.split_once("\";"))
        .expect("its usage")
        .0;
    let flags = usage
        .lines()
        .filter(|line| line.starts_with("  -"))
        .filter_map(|line| line.split_whitespace().next());
    same(
        &rows(REFERENCE, "## `dhcp daemon`"),
        &flags.map(str::to_owned).collect(),
        REFERENCE,
    );
}

#[test]
fn every_capability_is_documented() {
    let unit = read("daemon/dist/leasehold.service");
    let bounds = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("a bounding set");
    let known: BTreeSet<String> = bounds
        .split(' ')
        .map(|name| name.trim_start_matches("CAP_").to_owned())
        .collect();
    same(&rows(REFERENCE, "## Capabilities"), &known, REFERENCE);
    // README.md lacks these.
    assert_eq!(missing(&known, &quoted(&read("README.md"))), [""; 0]);
}

#[test]
fn every_event_and_every_trouble_is_documented() {
    for (file, heading) in [
        ("daemon/core/src/event.rs", "### Events"),
        ("daemon/core/src/trouble.rs", "### What `status` reports"),
    ] {
        let code = code(file);
        let names = code
            .split_once("named! {")
            .and_then(|(_, rest)| rest.split_once(" {\n")?.1.split_once("\n    }"))
            .expect("the names")
            .0;
        same(
            &rows(OPERATIONS, heading),
            &behind(names, " = \"").collect(),
            OPERATIONS,
        );
    }
}

#[test]
fn the_changelog_fits_into_that_of_a_package() {
    // There each line is two characters longer, and 80 are allowed.
    let text = read(CHANGELOG);
    let long: Vec<_> = text
        .lines()
        .filter(|line| line.chars().count() > 78)
        .collect();
    assert_eq!(long, [""; 0]);
}

#[test]
fn what_a_document_points_at_is_there() {
    let documents = tracked().into_iter().filter(|file| file.ends_with(".md"));
    for document in documents {
        let text = read(&document);
        let folder = document
            .rsplit_once('/')
            .map_or(String::new(), |(folder, _)| format!("{folder}/"));
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0))
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                document.clone()
            } else {
                format!("{folder}{file}")
            };
            assert!(
                root().join(&target).exists(),
                "{document} links to {link}, which is not there"
            );
            // A picture has none.
            let headings = if anchor.is_empty() {
                String::new()
            } else {
                read(&target)
            };
            let mut headings = headings
                .lines()
                .filter(|line| line.starts_with('#'))
                .map(anchor_of);
            assert!(
                anchor.is_empty() || headings.any(|name| name == anchor),
                "{document} links to {link}: no such heading"
            );
        }
        for path in quoted(&text) {
            let ours = ["daemon/", "shim/", "tests/", "netns-fixtures/"]
                .iter()
                .any(|top| path.starts_with(top));
            let path = path.split([' ', ':']).next().unwrap_or_default();
            assert!(
                !ours || root().join(path).exists(),
                "{document} names {path}, which is not there"
            );
        }
    }
}

#[test]
fn the_architecture_is_told_in_four_thousand_words() {
    let words = read(ARCHITECTURE).split_whitespace().count();
    assert!(words <= 4000, "{ARCHITECTURE} has {words} words");
}

/// Those who read a table look for one row: symptom, cause, what to do.
#[test]
fn no_cell_of_a_table_has_more_than_forty_words() {
    let mut long = Vec::new();
    for document in [
        ARCHITECTURE,
        README,
        CHANGELOG,
        CNI,
        DOCKER,
        SCENARIOS,
        KUBERNETES,
        METRICS,
        OPERATIONS,
        REFERENCE,
    ] {
        let text = read(document);
        for row in text.lines().filter(|line| line.starts_with('|')) {
            // A bar in a cell has a backslash.
            let row = row.replace("\\|", "");
            let cells = row
                .split('|')
                .filter(|cell| cell.split_whitespace().count() > 40);
            long.extend(cells.map(|cell| format!("{document}: {cell}")));
        }
    }
    assert_eq!(long, [""; 0], "make two rows of one, or say less");
}

#[test]
fn no_link_is_dead_in_a_package() {
    let dir = tempfile::tempdir().expect("a directory");
    let status = Command::new(root().join("daemon/dist/documents"))
        .arg(dir.path())
        .status();
    assert!(status.expect("it can be run").success());
    let documents = fs::read_dir(dir.path()).expect("it is there");
    let documents = documents.map(|file| file.expect("it can be listed").path());
    for document in documents.filter(|file| file.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&document).expect("it is text");
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split([')', '#']).next()) {
            let is_there = link.starts_with("http") || dir.path().join(link).exists();
            assert!(is_there, "{} links to {link}", document.display());
        }
    }
}

#[test]
fn what_a_walk_passes_through_is_there() {
    let text = read(ARCHITECTURE);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut passed = 0;
    for (before, after) in text
        .match_indices("` (`")
        .map(|(at, _)| (&text[..at], &text[at + "` (".len()..]))
    {
        let file = before.rsplit('`').next().unwrap_or_default();
        let functions = quoted(after.split(')').next().unwrap_or_default());
        for function in functions.iter().filter(|_| file.ends_with(".rs")) {
            assert!(
                read(file).contains(&format!("fn {function}")),
                "{ARCHITECTURE}: there is no {function} in {file}"
            );
            passed += 1;
        }
    }
    assert!(passed > 20, "the walks name {passed} functions");
}

/// A row says which tests show it, or that none does.
#[test]
fn each_scenario_names_tests_that_there_are() {
    let text = read(SCENARIOS);
    let code: Vec<String> = tracked()
        .iter()
        .filter(|file| file.ends_with(".rs"))
        .map(|file| read(file))
        .collect();
    let is_there = |name: &str| {
        let [plain, generic] = [format!("fn {name}("), format!("fn {name}<")];
        code.iter()
            .any(|text| text.contains(&plain) || text.contains(&generic))
    };
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| scenario ");
    let mut named = 0;
    for row in text.lines().filter(is_row) {
        let shown = row.split('|').nth(3).unwrap_or_default();
        let tests = quoted(shown);
        assert!(
            !tests.is_empty() || shown.contains("not covered"),
            "{SCENARIOS} says of no test: {row}"
        );
        for test in &tests {
            assert!(
                is_there(test),
                "{SCENARIOS} names the test {test}, which is not there"
            );
        }
        named += tests.len();
    }
    assert!(named > 40, "{SCENARIOS} names {named} tests");
}

/// Returns the anchor that a heading gets.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn the_core_s_rules_are_listed_as_the_code_has_them() {
    let row = |stated: &Stated| {
        let Stated {
            rule,
            why,
            property,
            seed,
        } = stated;
        format!("| {rule:?} |{why} | {property} | {seed} |\n")
    };
    let rows: String = RULES.iter().map(row).collect();
    let document = read("daemon/docs/rules.md");
    let (_, listed) = document.split_once("|---|---|---|---|\n").expect("a table");
    assert!(listed == rows, "daemon/docs/rules.md should list:\n{rows}");
}
