//! Relays between nodes. A relay counts the bytes that replication puts on the wire, without
//! headers of TCP and IP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// Listens at `name`, carries every connection to `node`, and adds the bytes of both directions to
/// `bytes`. The relay's threads end with the process.
pub fn start(name: SocketAddr, node: SocketAddr, bytes: Arc<AtomicU64>) -> Result<()> {
    let listener = TcpListener::bind(name).with_context(|| format!("cannot listen on {name}"))?;
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            // The node that dialled tries again.
            let Ok(far) = TcpStream::connect(node) else { continue };
            let Ok((near_too, far_too)) = near.try_clone().and_then(|n| Ok((n, far.try_clone()?)))
            else {
                continue;
            };
            carry(near, far, Arc::clone(&bytes));
            carry(far_too, near_too, Arc::clone(&bytes));
        }
    });
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream, bytes: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let _ = to.set_nodelay(true);
        let mut piece = vec![0; 256 << 10];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            bytes.fetch_add(count as u64, Ordering::Relaxed);
            if to.write_all(&piece[..count]).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}
