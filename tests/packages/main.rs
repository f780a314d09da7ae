//! What users install, as it is shipped: packages, the image, and Kubernetes' manifests.

mod debian;
mod documents;
mod image;
mod kubelet;
mod kubernetes;
mod rpm;
mod verify;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use netns_fixtures::{Error, Need, Netns, binary};

/// Where the scripts are that make all this.
const DIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../daemon/dist");

/// What it takes to make packages.
const PACKAGING: [Need; 3] = [
    Need::RealRoot,
    Need::Program("cargo-deb"),
    Need::Program("cargo-generate-rpm"),
];

/// The programs that are built here, without their symbols, as they are shipped, and room for what is made from them.
struct Shipped {
    host: Netns,
    target: PathBuf,
    programs: PathBuf,
}

/// The store of a later release, in place of the existing one.
struct LaterStore {
    path: PathBuf,
    kept: PathBuf,
}

impl LaterStore {
    /// What a program that reads the store says.
    const SAID: &str = "is from leasehold 9.8.7 and has format 9; leasehold 0.1.0 knows 1 at most: run the newer one, or move the file away";

    /// Puts the store below the root directory of a host, where a daemon may be running: the daemon notices it at its next
    /// commit.
    fn put_into(root: &Path) -> Self {
        let path = root.join("var/lib/leasehold/leases.redb");
        let kept = path.with_extension("kept");
        fs::rename(&path, &kept).expect("there is a store");
        fs::copy(&kept, &path).expect("there is room");
        let database = redb::Database::open(&path).expect("it is a copy");
        let change = || -> Result<(), redb::Error> {
            let txn = database.begin_write()?;
            txn.open_table(redb::TableDefinition::<&str, u64>::new("meta"))?
                .insert("format", 9)?;
            txn.open_table(redb::TableDefinition::<(), &str>::new("release"))?
                .insert((), "9.8.7")?;
            Ok(txn.commit()?)
        };
        change().expect("it can be written");
        Self { path, kept }
    }

    /// Puts the previous store back.
    fn take_back(self) {
        fs::rename(self.kept, self.path).expect("it was kept");
    }
}

impl Shipped {
    fn new(host: &Netns) -> Result<Self, Error> {
        let target = host.sandbox().dir("shipped")?;
        // As Cargo has it: its tools find programs by that.
        let programs = target.join("x86_64-unknown-linux-gnu/release");
        fs::create_dir_all(&programs).expect("an empty directory takes more");
        for name in ["leasehold", "dhcp"] {
            let (from, to) = (binary(name)?, programs.join(name));
            let (from, to) = (from.display(), to.display());
            host.sh(&format!("strip -o '{to}' '{from}'"))?;
        }
        Ok(Self {
            host: host.clone(),
            target,
            programs,
        })
    }

    /// Runs a script of daemon/dist for these programs, and returns what it printed.
    fn make(&self, script: &str, args: &[&str], env: &[(&str, &str)]) -> Result<String, Error> {
        let mut command = Command::new("env");
        command.arg(format!("BINARIES={}", self.programs.display()));
        command.args(env.iter().map(|(name, value)| format!("{name}={value}")));
        let args = command
            .arg(Path::new(DIST).join(script))
            .args(args)
            .get_args();
        let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
        self.host.run_command(
            "env",
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
            "",
        )
    }

    /// Makes packages in these formats, and returns their directory.
    fn packages(&self, revision: &str, formats: &str) -> Result<PathBuf, Error> {
        let dir = self.target.join(revision);
        // Where Cargo's tools look for them.
        let target = self.target.to_string_lossy();
        let env = [
            ("REVISION", revision),
            ("FORMATS", formats),
            ("CARGO_TARGET_DIR", &target),
        ];
        self.make("packages/build", &[&dir.to_string_lossy(), "amd64"], &env)?;
        Ok(dir)
    }

    /// Returns the one file in a directory whose name has this ending.
    fn file(dir: &Path, end: &str) -> String {
        let names = fs::read_dir(dir)
            .expect("it was made")
            .map(|entry| entry.expect("it can be read").path());
        let file = names
            .into_iter()
            .find(|path| path.to_string_lossy().ends_with(end));
        file.unwrap_or_else(|| panic!("no {end} in {}", dir.display()))
            .to_string_lossy()
            .into_owned()
    }
}
