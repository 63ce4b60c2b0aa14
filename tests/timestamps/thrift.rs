//! The smallest client: getTimestamps over Thrift. It sends bytes as the original's clients send
//! them, and reads replies without any code of the server.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const METHOD: &[u8] = b"getTimestamps";
const STRICT_CALL: u32 = 0x8001_0001;
const STRICT_REPLY: u32 = 0x8001_0002;
const STRICT_EXCEPTION: u32 = 0x8001_0003;
/// Longest text of an exception that is read, in bytes.
const TEXT_BYTES_MAX: u32 = 4_096;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first timestamp.
    First(u64),
    /// An exception with its text, and no timestamp.
    Refused(String),
}

/// One connection to a server.
#[derive(Debug)]
pub struct Thrift {
    stream: TcpStream,
    sequence: u32,
}

impl Thrift {
    /// Connects. `patience` limits the connection and every read.
    pub fn connect(to: SocketAddr, patience: Duration) -> Result<Thrift> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Thrift { stream, sequence: 0 })
    }

    /// Asks for `count` consecutive timestamps.
    pub fn get(&mut self, count: u32) -> Result<Reply> {
        self.sequence += 1;
        let mut call = Vec::with_capacity(40);
        call.extend(STRICT_CALL.to_be_bytes());
        call.extend((METHOD.len() as u32).to_be_bytes());
        call.extend(METHOD);
        call.extend(self.sequence.to_be_bytes());
        // Field 1 is an i32. Then the arguments end.
        call.extend([8, 0, 1]);
        call.extend(count.to_be_bytes());
        call.push(0);
        self.stream.write_all(&call)?;
        self.read()
    }

    fn read(&mut self) -> Result<Reply> {
        let head = self.u32()?;
        let method = self.text()?;
        let sequence = self.u32()?;
        if method.as_bytes() != METHOD || sequence != self.sequence {
            return Err(wrong(&format!("{method} {sequence}")));
        }
        match head {
            // Field 0 is an i64.
            STRICT_REPLY => {
                self.expect(&[10, 0, 0])?;
                let first = u64::from_be_bytes(self.bytes()?);
                self.expect(&[0])?;
                Ok(Reply::First(first))
            }
            // Field 1 is a text, field 2 an i32.
            STRICT_EXCEPTION => {
                self.expect(&[11, 0, 1])?;
                let text = self.text()?;
                self.expect(&[8, 0, 2])?;
                self.u32()?;
                self.expect(&[0])?;
                Ok(Reply::Refused(text))
            }
            other => Err(wrong(&format!("{other:#x}"))),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    fn text(&mut self) -> Result<String> {
        let length = self.u32()?;
        if length > TEXT_BYTES_MAX {
            return Err(wrong(&format!("a text of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| wrong("no text"))
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<()> {
        for byte in wanted {
            let [found] = self.bytes()?;
            if found != *byte {
                return Err(wrong(&format!("{found} for {byte}")));
            }
        }
        Ok(())
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no reply of getTimestamps: {what}"))
}
