//! Tests of what is made from the command line, and a stand-in for the daemon.

mod shipped;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use tempfile::TempDir;

/// Runs `ask` beside a daemon that gives these answers in turn, an empty one by closing the connection. Returns the first line of
/// each request too.
pub(super) fn beside<T>(answers: &[&str], ask: impl FnOnce(&Path) -> T) -> (T, Vec<String>) {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let give = |answer: &&str| {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(answer.as_bytes()).unwrap();
        head[0].clone()
    };
    thread::scope(|scope| {
        let daemon = scope.spawn(|| answers.iter().map(give).collect());
        (ask(&socket), daemon.join().unwrap())
    })
}
