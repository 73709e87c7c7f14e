//! Whether a server answers: one that hangs goes on having its port, where the kernel takes connections for it, and writes nothing in its
//! log. To be asked costs an idle server next to nothing, and no client is run for it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whether a server takes a connection and answers a question; an empty one is not asked.
pub async fn answers(host: &str, port: u16, question: &[u8], patience: Duration) -> bool {
    question.is_empty()
        || tokio::time::timeout(patience, ask(host, port, question)).await.is_ok_and(|said| said.is_ok())
}

async fn ask(host: &str, port: u16, question: &[u8]) -> std::io::Result<()> {
    let mut server = TcpStream::connect((host, port)).await?;
    server.write_all(question).await?;
    server.read_u8().await.map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_takes_connections_and_says_nothing_does_not_answer() {
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = silent.local_addr().expect("has one").port();
        assert!(!answers("127.0.0.1", port, b"?", short).await);
        assert!(answers("127.0.0.1", port, b"", short).await, "is not asked");
        drop(silent);
        assert!(!answers("127.0.0.1", port, b"?", long).await, "nobody is there");
        let talks = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = talks.local_addr().expect("has one").port();
        tokio::spawn(async move { talks.accept().await.expect("comes").0.write_all(b"N").await });
        assert!(answers("127.0.0.1", port, b"?", long).await);
    }
}
