//! Shell completions and manual pages are made from the arguments, kept in `daemon/dist`, and compared here: the program itself
//! does not contain the code that makes them. `LEASEHOLD_WRITE=1 cargo test -p leasehold shipped` rewrites them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::args::Args;

/// Returns the files by their names below `daemon/dist`.
fn made() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut command = Args::command();
    command.build();
    for (shell, name) in [
        (Shell::Bash, "leasehold.bash"),
        (Shell::Zsh, "_leasehold"),
        (Shell::Fish, "leasehold.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "leasehold", &mut text);
        files.insert(format!("completions/{name}"), text);
    }
    files.insert("man/leasehold.1".to_owned(), page(command.clone()));
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        let name: &str = format!("leasehold-{}", verb.get_name()).leak();
        files.insert(format!("man/{name}.1"), page(verb.clone().name(name)));
    }
    files
}

/// Returns a manual page.
fn page(command: Command) -> Vec<u8> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text).unwrap();
    text
}

#[test]
fn what_is_shipped_is_made_from_the_arguments() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist");
    let made = made();
    if env::var_os("LEASEHOLD_WRITE").is_some() {
        for (file, text) in &made {
            fs::create_dir_all(dist.join(file).parent().unwrap()).unwrap();
            fs::write(dist.join(file), text).unwrap();
        }
    }
    let again = "run LEASEHOLD_WRITE=1 cargo test -p leasehold shipped";
    for (file, text) in &made {
        let kept = fs::read(dist.join(file)).unwrap_or_default();
        assert!(
            kept == *text,
            "daemon/dist/{file} is not what the arguments make: {again}"
        );
    }
    let folders = ["completions", "man"].map(|folder| dist.join(folder));
    let kept = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let strange: Vec<PathBuf> = kept
        .map(|entry| entry.unwrap().path())
        .filter(|path| !made.keys().any(|file| path.ends_with(file)))
        .collect();
    assert!(strange.is_empty(), "nothing makes {strange:?}: remove them");
}
