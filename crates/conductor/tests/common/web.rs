//! Real HTTP servers, and clients that count.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::world::soon;

/// An address of this machine that is not loopback, which Kubernetes refuses as an endpoint's.
pub fn own_address() -> Option<IpAddr> {
    // no packet is sent: the kernel says which address it would use
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

/// An HTTP server of its own that answers with its name: an haproxy without a backend. It can be killed.
pub struct Backend {
    /// Where it listens.
    pub address: SocketAddr,
    config: PathBuf,
    child: Child,
    _directory: tempfile::TempDir,
}

impl Backend {
    /// Starts one on a free port of an address.
    pub fn start(name: &str, address: IpAddr) -> Backend {
        let directory = tempfile::tempdir().expect("makes a directory");
        let free = TcpListener::bind((address, 0)).expect("listens").local_addr().expect("has one");
        let config = directory.path().join("backend.cfg");
        let text = format!(
            "global\n  maxconn 500\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
             frontend f\n  bind {free}\n  http-request return status 200 content-type text/plain string {name}\n"
        );
        fs::write(&config, text).expect("is written");
        let child = Backend::run(&config);
        let backend = Backend { address: free, config, child, _directory: directory };
        backend.until_up();
        backend
    }

    fn run(config: &PathBuf) -> Child {
        let program = conductor_local::lack::find_program("haproxy", &[]).expect("is there");
        Command::new(program).args(["-db", "-f"]).arg(config).stderr(Stdio::null()).spawn().expect("starts")
    }

    fn until_up(&self) {
        soon("listening", || TcpStream::connect(self.address).ok());
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("is ours");
        self.child.wait().expect("is gone");
    }

    /// Starts it again where it was.
    pub fn revive(&mut self) {
        self.child = Backend::run(&self.config);
        self.until_up();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own: status and content.
pub fn ask(to: SocketAddr, host: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut socket = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| std::io::Error::other(format!("no HTTP: {answer:?}")))?;
    Ok((code, answer.rsplit_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// Clients that ask without a pause until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    fine: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// So many clients, each with its own connections.
    pub fn start(clients: usize, to: SocketAddr, host: &str) -> Load {
        let (stop, fine) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let each = |_| {
            let (stop, fine, host) = (stop.clone(), fine.clone(), host.to_owned());
            std::thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match ask(to, &host, "/") {
                        Ok((200, _)) => drop(fine.fetch_add(1, Ordering::Relaxed)),
                        other => failures.push(format!("{other:?}")),
                    }
                }
                failures
            })
        };
        let threads = (0..clients).map(each).collect();
        Load { stop, fine, threads }
    }

    /// Waits until so many more requests went well.
    pub fn more(&self, count: u64) {
        let before = self.fine.load(Ordering::Relaxed);
        soon("enough requests", || (self.fine.load(Ordering::Relaxed) >= before + count).then_some(()));
    }

    /// Stops them: how many requests went well, and what went wrong.
    pub fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.threads.into_iter().flat_map(|thread| thread.join().expect("ends")).collect();
        (self.fine.load(Ordering::Relaxed), failures)
    }
}
