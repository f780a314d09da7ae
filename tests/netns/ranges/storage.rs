//! Directories that are large, slow, full or read-only, and file systems without hard links.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::*;

/// How many addresses are taken in a large directory.
const MANY: u32 = 100_000;

/// Becomes another program, whose attempts to link a file fail, as on a file system without links.
const WITHOUT_LINKS: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_link
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_link, 1, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof rules / sizeof *rules, rules };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
    execv(argv[1], argv + 1);
    return 1;
}
"#;

impl Host {
    fn pods(&self) -> PathBuf {
        self.data_dir.join("pods")
    }

    fn sh(&self, script: &str) -> Result<String, Error> {
        let place = self.data_dir.to_string_lossy();
        self.lan
            .host
            .run_command("sh", &["-euc", script, "sh", &place], "")
    }

    /// Returns the names of the files that an address has, or had.
    fn left(&self) -> Vec<String> {
        let files = fs::read_dir(self.pods()).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().into_string().expect("a name of ASCII"));
        names.filter(|name| name.starts_with("10.")).collect()
    }
}

/// Half of the addresses have a note, half are host-local's.
#[test]
fn an_add_and_a_del_end_among_100_000_addresses() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.8.0.0/14")?;
    host.config["ipam"]["timeout"] = 600.into();
    let member = host.container("member")?;
    let pods = host.pods();
    fs::create_dir_all(&pods).expect("a directory");
    let [holder, note] = ["holder", "note"].map(|name| pods.join(name));
    fs::write(&holder, "other\r\neth0").expect("a file");
    fs::write(
        &note,
        format!(
            "boot other\nhost other\nnetns {}\n",
            member.netns.path().display()
        ),
    )
    .expect("a file");
    let address = |n: u32| std::net::Ipv4Addr::from_bits(0x0a08_0002 + n).to_string();
    for n in 0..MANY {
        let address = address(n);
        fs::hard_link(&holder, pods.join(&address)).expect("a link");
        if n % 2 == 0 {
            let beside = format!("{address}.by.{:016x}", 0x0123_4567_89ab_cdef_u64);
            fs::hard_link(&note, pods.join(beside)).expect("a link");
        }
    }
    let last = address(MANY - 1);
    host.config["ipam"]["rangeEnd"] = last.into();
    let full = host.address(&member).expect_err("all are taken").cni();
    assert_eq!(full.code, 11, "{full}");
    assert!(
        full.msg
            .contains("100000 of 100000 addresses of range set 0 are taken, "),
        "{full}"
    );
    host.config["ipam"]["rangeEnd"] = address(MANY + 9).into();
    let expected = format!("{}/14", address(MANY));
    assert_eq!(host.address(&member)?, expected);
    host.ours.check(&member, &host.config, &json!({}))?;
    host.ours.del(&member, &host.config)?;
    let gone = host.ours.check(&member, &host.config, &json!({}));
    assert_eq!(gone.expect_err("it has none").cni().code, 3);
    assert_eq!(host.left().len() as u32, MANY + MANY / 2);
    Ok(())
}

/// Its directory is an overlay, as in a container, and another process keeps it locked until an ADD waits for it.
#[test]
fn an_add_waits_for_a_directory_that_is_busy() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    host.config["ipam"]["timeout"] = 600.into();
    host.sh(
        "cd $1; mkdir lower upper work merged; mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged",
    )?;
    host.data_dir = host.data_dir.join("merged");
    host.config["ipam"]["dataDir"] = json!(host.data_dir);
    let first = host.container("first")?;
    let second = host.container("second")?;
    assert_eq!(host.address(&first)?, "10.9.0.2/24");
    let lock = File::open(host.pods().join("lock")).expect("a file");
    lock.lock().expect("nobody has it");
    let call = host.ours.start("ADD", &second, &host.config)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string("/proc/locks")
        .expect("a list")
        .contains("-> FLOCK")
    {
        assert!(Instant::now() < deadline, "nobody waits for the lock");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(host.files().len(), 1);
    drop(lock);
    assert_eq!(address(&call.wait()?), "10.9.0.3/24");
    for container in [&first, &second] {
        host.ours.del(container, &host.config)?;
    }
    assert_eq!(host.left(), [""; 0]);
    Ok(())
}

/// A pipe stands for a disk that does not answer: nobody ever writes to it.
#[test]
fn a_directory_that_does_not_answer_is_named() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    host.config["ipam"]["timeout"] = json!(0.5);
    host.sh("mkdir $1/pods; mkfifo $1/pods/10.9.0.7")?;
    let error = host
        .address(&host.container("c1")?)
        .expect_err("it hangs")
        .cni();
    let expected = format!(
        "{} has not been read and written within 0.5 s",
        host.pods().display()
    );
    assert!(
        error.code == 11 && error.msg.starts_with(&expected),
        "{error}"
    );
    host.sh("rm $1/pods/10.9.0.7")?;
    assert_eq!(host.address(&host.container("c2")?)?, "10.9.0.2/24");
    Ok(())
}

/// There is room for one more file each time, until the ADD has all that it makes.
#[test]
fn an_add_that_finds_no_room_for_a_file_leaves_none() -> Result<(), CallError> {
    let host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    host.sh("mount -t tmpfs -o nr_inodes=20 none $1; mkdir $1/pods; touch $1/pods/lock")?;
    let container = host.container("c1")?;
    let mut failed = 0;
    let given = loop {
        // How many are in use is the kernel's business: the file system is filled, and one file removed after another.
        host.sh("i=0; while touch $1/fill-$i 2>/dev/null; do i=$((i + 1)); done; true")?;
        let remove = format!("cd $1; ls | grep ^fill- | head -n {failed} | xargs -r rm");
        host.sh(&remove)?;
        match host.address(&container) {
            Ok(given) => break given,
            Err(error) => {
                let error = error.cni();
                assert_eq!(error.code, 11, "{error}");
                let place = host.pods().to_string_lossy().into_owned();
                assert_says(&error.msg, &place);
                assert_says(&error.msg, "No space left on device");
                assert_eq!(host.left(), [""; 0], "after {failed} files");
            }
        }
        failed += 1;
        assert!(failed < 12, "an ADD makes no more files");
    };
    assert!(failed > 1, "an address has a file and a note");
    assert_eq!(given, "10.9.0.2/24");
    Ok(())
}

#[test]
fn a_read_only_directory_fails_calls_and_is_named() -> Result<(), CallError> {
    let mut host = Host::new(&sandbox!(NEEDS), "10.9.0.0/24")?;
    host.sh("mount -t tmpfs none $1")?;
    let member = host.container("member")?;
    let late = host.container("late")?;
    assert_eq!(host.address(&member)?, "10.9.0.2/24");
    host.sh("mount -o remount,ro none $1")?;
    let lock = host.pods().join("lock");
    let expected = format!("{}: Read-only file system", lock.display());
    for (verb, container) in [("ADD", &late), ("DEL", &member)] {
        let call = host.ours.start(verb, container, &host.config)?;
        let error = call.wait().expect_err("nothing can be written").cni();
        assert!(
            error.code == 5 && error.msg.starts_with(&expected),
            "{verb}: {error}"
        );
    }
    host.config["cniVersion"] = "1.1.0".into();
    let status = host
        .ours
        .start_with("STATUS", &[], host.config.to_string().as_bytes())?;
    let error = status.wait().expect_err("nothing can be written").cni();
    assert!(
        error.code == 50 && error.msg.starts_with(&expected),
        "{error}"
    );
    host.sh("mount -o remount,rw none $1")?;
    assert_eq!(host.address(&late)?, "10.9.0.3/24");
    host.ours.del(&member, &host.config)?;
    assert_eq!(host.files().into_keys().collect::<Vec<_>>(), ["10.9.0.3"]);
    Ok(())
}

/// Some file systems of a network, and FAT, have none: an address's file is made as host-local makes it.
#[test]
fn without_hard_links_addresses_are_given_as_well() -> Result<(), CallError> {
    let sandbox = sandbox!(&[Need::File(HOST_LOCAL), Need::Program("cc")]);
    let mut host = Host::new(&sandbox, "10.9.0.0/24")?;
    let tools = sandbox.dir("tools")?;
    let jail = tools.join("without-links").to_string_lossy().into_owned();
    let build = ["-x", "c", "-o", &jail, "-"];
    host.lan.host.run_command("cc", &build, WITHOUT_LINKS)?;
    let linked = host
        .lan
        .host
        .run_command(&jail, &["/bin/ln", &jail, "/run/copy"], "");
    assert!(linked.is_err(), "links are refused");
    let program = tools.join("host-local");
    let script = format!("#!/bin/sh\nexec {jail} {}\n", binary("dhcp")?.display());
    fs::write(&program, script).expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("a file");
    host.ours = Shim::at(&host.lan.host, program);

    let containers = host.containers(4)?;
    for (number, container) in containers.iter().enumerate() {
        let plugin = if number % 2 == 0 {
            &host.ours
        } else {
            &host.theirs
        };
        let given = address(&host.add(plugin, container)?);
        assert_eq!(given, format!("10.9.0.{}/24", number + 2));
    }
    // Notes are ours alone; nothing unfinished is left.
    assert_eq!(host.left().len(), 6, "{:?}", host.left());
    for container in &containers {
        host.ours.check(container, &host.config, &json!({}))?;
        host.ours.del(container, &host.config)?;
    }
    assert_eq!(host.left(), [""; 0]);
    Ok(())
}
