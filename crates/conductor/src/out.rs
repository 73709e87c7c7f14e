//! Standard output: when nobody reads it any more (`| head`), the command ends, and quietly.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Writes to standard output as it is.
pub fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Writes a line.
pub fn say(line: &str) -> anyhow::Result<()> {
    write(format!("{line}\n").as_bytes())
}

/// Ends the command when nobody reads any more; waits for ever where that cannot be known.
pub async fn unread() {
    // only asked how it is, never written to: it may stay blocking
    let own = std::io::stdout().as_fd().try_clone_to_owned();
    if let Ok(out) = own.and_then(Sender::from_owned_fd_unchecked)
        && out.ready(Interest::ERROR).await.is_ok()
    {
        std::process::exit(0);
    }
    // a file has nobody who could go
    std::future::pending().await
}
