//! Apache Thrift's binary protocol, unframed, as far as the timestamp service speaks it: requests
//! and replies of `getTimestamp()` and `getTimestamps(1:i32 range)`, and exceptions.
//!
//! Requests must be of the strict (versioned) form, as the original server demands; replies are
//! written in either form and read in either. Whatever is not known is skipped, within bounds: a
//! message is read again from its first byte when more of it has come, so that what one reading
//! costs must not depend on what the other end sends.

/// Bytes of a name or of any other string in a request (the original's limit).
pub const STRING_BYTES_MAX: usize = 10_240;
/// Bytes of a whole request: one with the longest name and 6 KB of arguments fits.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Bytes of a whole reply: the exception fits that names an unknown method of the longest name
/// twice, once with each byte made into a replacement character of three.
pub const REPLY_BYTES_MAX: usize = 48 << 10;
/// Structs and containers inside each other.
pub const DEPTH_MAX: u32 = 32;
/// Values of one message that are looked at one by one. Numbers in a container and the bytes of a
/// string are passed over at once, so that only what nobody sends comes near it.
pub const VALUES_MAX: u32 = 256;

/// The name of the method that takes no arguments.
pub const GET_TIMESTAMP: &[u8] = b"getTimestamp";
/// The name of the method that takes a range.
pub const GET_TIMESTAMPS: &[u8] = b"getTimestamps";

/// The first two bytes of a strict message.
const VERSION_1: [u8; 2] = [0x80, 0x01];

/// Numbers of types on the wire.
mod kind {
    pub const STOP: u8 = 0;
    pub const BOOL: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const DOUBLE: u8 = 4;
    pub const I16: u8 = 6;
    pub const I32: u8 = 8;
    pub const I64: u8 = 10;
    pub const STRING: u8 = 11;
    pub const STRUCT: u8 = 12;
    pub const MAP: u8 = 13;
    pub const SET: u8 = 14;
    pub const LIST: u8 = 15;
    pub const UUID: u8 = 16;
}

/// Why bytes are no message. Nothing after them can be understood, so the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ThriftError {
    /// The form without a version, or a length before the message.
    #[error(
        "not a strict message: use TBinaryProtocol with strict writing, and no framed transport"
    )]
    Unversioned,
    /// Another protocol, or a version that is not known.
    #[error("not version 1 of the binary protocol: use TBinaryProtocol")]
    Version,
    /// Neither a call nor a one-way call, where a request is expected; or no reply where one is.
    #[error(
        "message type {0}: expected a call (1) or a one-way call (4), or in answer to them a \
             reply (2) or an exception (3)"
    )]
    MessageType(u8),
    /// A negative length, or in a request one above [`STRING_BYTES_MAX`].
    #[error("a string of {0} bytes: expected 0 to 10240")]
    StringLength(i32),
    /// A container with a negative number of elements.
    #[error("a container of {0} elements: expected 0 or more")]
    ContainerSize(i32),
    /// A type that is not known cannot be skipped.
    #[error("field type {0} is not known: expected a type of Thrift's binary protocol")]
    FieldType(u8),
    /// A request above [`REQUEST_BYTES_MAX`], or a reply above [`REPLY_BYTES_MAX`].
    #[error("a message of more than {0} bytes: expected a call of getTimestamps or its reply")]
    TooLong(usize),
    /// Above [`DEPTH_MAX`].
    #[error("more than 32 structs inside each other: expected the arguments of getTimestamps")]
    TooDeep,
    /// Above [`VALUES_MAX`].
    #[error("more than 256 values in one message: expected the arguments of getTimestamps")]
    TooMany,
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `getTimestamp()`.
    GetTimestamp,
    /// `getTimestamps(range)`; `None`: the argument is missing.
    GetTimestamps {
        /// As sent: any number.
        range: Option<i32>,
    },
    /// Another one; its arguments have been skipped.
    Unknown,
}

/// A complete request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// What is asked for.
    pub method: Method,
    /// The method's name, to be repeated in the reply: at most [`STRING_BYTES_MAX`] bytes, any.
    pub name: &'a [u8],
    /// The sequence number, to be repeated in the reply.
    pub seqid: i32,
    /// Whether it says that it waits for no reply. The original replies all the same.
    pub is_oneway: bool,
}

/// The form of a reply's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Versioned: understood by strict and by lenient clients.
    #[default]
    Strict,
    /// Without a version, as the original writes: not understood by strict clients.
    Old,
}

/// The kinds of exceptions that are written (`TApplicationException`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExceptionKind {
    /// There is no such method.
    UnknownMethod = 1,
    /// The request was understood and cannot be served.
    InternalError = 6,
    /// The request is wrong.
    ProtocolError = 7,
}

/// A complete reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The method's name.
    pub name: &'a [u8],
    /// The sequence number of the request.
    pub seqid: i32,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// The number returned.
    Value(i64),
    /// A reply without a number.
    NoValue,
    /// An exception.
    Exception {
        /// As sent; 0 if it does not say. [`ExceptionKind`] names some.
        kind: i32,
        /// Text, if all is well.
        message: &'a [u8],
    },
}

/// Reads the request at the front of `bytes`, and how many bytes it has. `None`: more must come.
/// What was refused stays refused whatever follows. Cost: at most a look at [`VALUES_MAX`] values.
#[inline]
pub fn parse_request(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, ThriftError> {
    let mut reader = Reader { bytes, at: 0, values_left: VALUES_MAX, bounds: REQUEST };
    reader.request().map(|request| Some((request, reader.at))).or_else(Stop::settle)
}

/// Reads the reply at the front of `bytes`, of either form, and how many bytes it has; else as
/// [`parse_request`].
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, ThriftError> {
    let mut reader = Reader { bytes, at: 0, values_left: VALUES_MAX, bounds: REPLY };
    reader.reply().map(|reply| Some((reply, reader.at))).or_else(Stop::settle)
}

/// Appends a call of `getTimestamp()`.
pub fn write_get_timestamp(out: &mut Vec<u8>, seqid: i32) {
    write_head(out, Form::Strict, 1, GET_TIMESTAMP, seqid);
    out.push(kind::STOP);
}

/// Appends a call of `getTimestamps(range)`.
pub fn write_get_timestamps(out: &mut Vec<u8>, seqid: i32, range: i32) {
    write_head(out, Form::Strict, 1, GET_TIMESTAMPS, seqid);
    out.extend_from_slice(&[kind::I32, 0, 1]);
    out.extend_from_slice(&range.to_be_bytes());
    out.push(kind::STOP);
}

/// Appends a reply that carries a number.
#[inline]
pub fn write_value(out: &mut Vec<u8>, form: Form, request: &Request<'_>, value: i64) {
    write_head(out, form, 2, request.name, request.seqid);
    let mut result = [kind::I64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kind::STOP];
    result[3..11].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&result);
}

/// Appends an exception.
pub fn write_exception(
    out: &mut Vec<u8>,
    form: Form,
    request: &Request<'_>,
    (exception, message): (ExceptionKind, &str),
) {
    write_head(out, form, 3, request.name, request.seqid);
    out.extend_from_slice(&[kind::STRING, 0, 1]);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message.as_bytes());
    out.extend_from_slice(&[kind::I32, 0, 2, 0, 0, 0, exception as u8, kind::STOP]);
}

/// Appends the original's exception for a method that does not exist.
pub fn write_unknown_method(out: &mut Vec<u8>, form: Form, request: &Request<'_>) {
    let message = format!("Invalid method name: '{}'", String::from_utf8_lossy(request.name));
    write_exception(out, form, request, (ExceptionKind::UnknownMethod, &message));
}

#[inline]
fn write_head(out: &mut Vec<u8>, form: Form, message_type: u8, name: &[u8], seqid: i32) {
    let length = (name.len() as u32).to_be_bytes();
    if form == Form::Strict {
        let [v0, v1] = VERSION_1;
        out.extend_from_slice(&[v0, v1, 0, message_type]);
    }
    out.extend_from_slice(&length);
    out.extend_from_slice(name);
    if form == Form::Old {
        out.push(message_type);
    }
    out.extend_from_slice(&seqid.to_be_bytes());
}

/// Why reading stopped.
enum Stop {
    More,
    Refused(ThriftError),
}

impl Stop {
    fn settle<T>(self) -> Result<Option<T>, ThriftError> {
        match self {
            Stop::More => Ok(None),
            Stop::Refused(error) => Err(error),
        }
    }
}

impl From<ThriftError> for Stop {
    fn from(error: ThriftError) -> Self {
        Stop::Refused(error)
    }
}

/// Bytes of a string and of the whole message.
#[derive(Clone, Copy)]
struct Bounds {
    string_max: usize,
    message_max: usize,
}

const REQUEST: Bounds = Bounds { string_max: STRING_BYTES_MAX, message_max: REQUEST_BYTES_MAX };
const REPLY: Bounds = Bounds { string_max: REPLY_BYTES_MAX, message_max: REPLY_BYTES_MAX };

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    values_left: u32,
    bounds: Bounds,
}

impl<'a> Reader<'a> {
    #[inline]
    fn request(&mut self) -> Result<Request<'a>, Stop> {
        self.version()?;
        let [_, message_type] = self.array::<2>()?;
        if message_type != 1 && message_type != 4 {
            return Err(ThriftError::MessageType(message_type).into());
        }
        let name = self.string()?;
        let seqid = self.i32()?;
        let method = match name {
            GET_TIMESTAMP => {
                self.skip_struct(0)?;
                Method::GetTimestamp
            }
            GET_TIMESTAMPS => Method::GetTimestamps { range: self.range()? },
            _ => {
                self.skip_struct(0)?;
                Method::Unknown
            }
        };
        Ok(Request { method, name, seqid, is_oneway: message_type == 4 })
    }

    /// The argument of `getTimestamps`. A field of its number and another type is another field,
    /// as in generated code.
    fn range(&mut self) -> Result<Option<i32>, Stop> {
        let mut range = None;
        while let Some(field) = self.field()? {
            match field {
                (kind::I32, 1) => range = Some(self.i32()?),
                (other, _) => self.skip(other, 0)?,
            }
        }
        Ok(range)
    }

    fn reply(&mut self) -> Result<Reply<'a>, Stop> {
        let is_strict = self.bytes.first().ok_or(Stop::More)? & 0x80 != 0;
        let (name, message_type) = if is_strict {
            self.version()?;
            let [_, message_type] = self.array::<2>()?;
            (self.string()?, message_type)
        } else {
            (self.string()?, self.array::<1>()?[0])
        };
        let seqid = self.i32()?;
        let outcome = match message_type {
            2 => self.result()?,
            3 => self.exception()?,
            other => return Err(ThriftError::MessageType(other).into()),
        };
        Ok(Reply { name, seqid, outcome })
    }

    fn result(&mut self) -> Result<Outcome<'a>, Stop> {
        let mut outcome = Outcome::NoValue;
        while let Some(field) = self.field()? {
            match field {
                (kind::I64, 0) => outcome = Outcome::Value(i64::from_be_bytes(self.array()?)),
                (other, _) => self.skip(other, 0)?,
            }
        }
        Ok(outcome)
    }

    fn exception(&mut self) -> Result<Outcome<'a>, Stop> {
        let (mut message, mut exception) = (&b""[..], 0);
        while let Some(field) = self.field()? {
            match field {
                (kind::STRING, 1) => message = self.string()?,
                (kind::I32, 2) => exception = self.i32()?,
                (other, _) => self.skip(other, 0)?,
            }
        }
        Ok(Outcome::Exception { kind: exception, message })
    }

    /// The first two bytes: refused at the first that is wrong, so that nobody who speaks something
    /// else waits for an answer.
    #[inline]
    fn version(&mut self) -> Result<(), Stop> {
        for expected in VERSION_1 {
            let [byte] = self.array()?;
            if byte != expected {
                let is_unversioned = self.at == 1 && byte & 0x80 == 0;
                let error =
                    if is_unversioned { ThriftError::Unversioned } else { ThriftError::Version };
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Type and number of the next field, or the end of the struct.
    #[inline]
    fn field(&mut self) -> Result<Option<(u8, i16)>, Stop> {
        let [field_type] = self.array()?;
        if field_type == kind::STOP {
            return Ok(None);
        }
        self.count()?;
        Ok(Some((field_type, i16::from_be_bytes(self.array()?))))
    }

    fn skip_struct(&mut self, depth: u32) -> Result<(), Stop> {
        while let Some((field_type, _)) = self.field()? {
            self.skip(field_type, depth)?;
        }
        Ok(())
    }

    /// Passes over a value that lies in `depth` structs and containers beside the outermost.
    fn skip(&mut self, value_type: u8, depth: u32) -> Result<(), Stop> {
        if let Some(bytes) = fixed_bytes(value_type) {
            self.take(bytes)?;
            return Ok(());
        }
        if value_type == kind::STRING {
            self.string()?;
            return Ok(());
        }
        let depth = depth + 1;
        if depth > DEPTH_MAX {
            return Err(ThriftError::TooDeep.into());
        }
        match value_type {
            kind::STRUCT => self.skip_struct(depth),
            kind::SET | kind::LIST => {
                let [element] = self.array()?;
                self.skip_elements(&[element], depth)
            }
            kind::MAP => {
                let pair: [u8; 2] = self.array()?;
                self.skip_elements(&pair, depth)
            }
            other => Err(ThriftError::FieldType(other).into()),
        }
    }

    /// The number of elements and the elements, each a value of every one of `types`.
    fn skip_elements(&mut self, types: &[u8], depth: u32) -> Result<(), Stop> {
        let size = self.i32()?;
        let size = usize::try_from(size).map_err(|_| ThriftError::ContainerSize(size))?;
        // The types of an empty container may be anything.
        if size == 0 {
            return Ok(());
        }
        let fixed: Option<usize> = types.iter().map(|&element| fixed_bytes(element)).sum();
        if let Some(bytes) = fixed {
            self.take(size.saturating_mul(bytes))?;
            return Ok(());
        }
        for _ in 0..size {
            for &element in types {
                self.count()?;
                self.skip(element, depth)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn count(&mut self) -> Result<(), Stop> {
        self.values_left = self.values_left.checked_sub(1).ok_or(ThriftError::TooMany)?;
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.i32()?;
        match usize::try_from(length) {
            Ok(bytes) if bytes <= self.bounds.string_max => self.take(bytes),
            _ => Err(ThriftError::StringLength(length).into()),
        }
    }

    #[inline]
    fn i32(&mut self) -> Result<i32, Stop> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("as many bytes as were taken"))
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        if count > self.bounds.message_max - self.at {
            return Err(ThriftError::TooLong(self.bounds.message_max).into());
        }
        let taken = self.bytes.get(self.at..self.at + count).ok_or(Stop::More)?;
        self.at += count;
        Ok(taken)
    }
}

/// Bytes of a value of a type whose values all have the same.
fn fixed_bytes(value_type: u8) -> Option<usize> {
    match value_type {
        kind::BOOL | kind::BYTE => Some(1),
        kind::I16 => Some(2),
        kind::I32 => Some(4),
        kind::I64 | kind::DOUBLE => Some(8),
        kind::UUID => Some(16),
        _ => None,
    }
}
