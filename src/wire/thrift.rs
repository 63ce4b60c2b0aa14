//! Apache Thrift's binary protocol, unframed, as far as the timestamp service speaks it: requests
//! and replies of `getTimestamp()` and `getTimestamps(1:i32 range)`, and exceptions.
//!
//! Requests must have the strict (versioned) form, as the original server demands. Replies are
//! written and read in both forms. Unknown fields are skipped, within bounds. A message is read
//! again from its first byte whenever more bytes of it arrive, so the cost of one reading must be
//! bounded whatever the other end sends.

// May panic: expectations 1, indices 2, cuts 1.
// Why it does not: found 1, fixed 3.

/// Most bytes of a name or of any other string in a request (the original's limit).
pub const STRING_BYTES_MAX: usize = 10_240;
/// Most bytes of a whole request: a request with the longest name and 6 KB of arguments fits.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a whole reply. The longest reply is an exception that names an unknown method of
/// the longest name twice, once with each byte made into a replacement character of three bytes.
pub const REPLY_BYTES_MAX: usize = 48 << 10;
/// Most structs and containers inside each other.
pub const DEPTH_MAX: u32 = 32;
/// Most values of one message that are read one by one. Numbers in a container and the bytes of a
/// string are skipped at once, so only messages that no client sends come near the limit.
pub const VALUES_MAX: u32 = 256;

/// The name of the method that takes no arguments.
pub const GET_TIMESTAMP: &[u8] = b"getTimestamp";
/// The name of the method that takes a range.
pub const GET_TIMESTAMPS: &[u8] = b"getTimestamps";

/// The first two bytes of a strict message.
const VERSION_1: [u8; 2] = [0x80, 0x01];

/// Numbers of the field types on the wire.
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

/// Why bytes are no message. No byte after them can be understood, so the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ThriftError {
    /// The message has the form without a version, or a length stands before the message.
    #[error(
        "not a strict message: use TBinaryProtocol with strict writing, and no framed transport"
    )]
    Unversioned,
    /// The bytes are of another protocol, or of an unknown version.
    #[error("not version 1 of the binary protocol: use TBinaryProtocol")]
    Version,
    /// A request is neither a call nor a one-way call, or a reply is neither a reply nor an
    /// exception.
    #[error(
        "message type {0}: expected a call (1) or a one-way call (4), or in answer to them a \
             reply (2) or an exception (3)"
    )]
    MessageType(u8),
    /// A length is negative, or a string in a request is longer than [`STRING_BYTES_MAX`].
    #[error("a string of {0} bytes: expected 0 to 10240")]
    StringLength(i32),
    /// A container has a negative number of elements.
    #[error("a container of {0} elements: expected 0 or more")]
    ContainerSize(i32),
    /// A field has an unknown type, which cannot be skipped.
    #[error("field type {0} is not known: expected a type of Thrift's binary protocol")]
    FieldType(u8),
    /// A request is longer than [`REQUEST_BYTES_MAX`], or a reply is longer than
    /// [`REPLY_BYTES_MAX`].
    #[error("a message of more than {0} bytes: expected a call of getTimestamps or its reply")]
    TooLong(usize),
    /// Structs and containers are nested deeper than [`DEPTH_MAX`].
    #[error("more than 32 structs inside each other: expected the arguments of getTimestamps")]
    TooDeep,
    /// The message has more values than [`VALUES_MAX`].
    #[error("more than 256 values in one message: expected the arguments of getTimestamps")]
    TooMany,
}

/// The method that a request calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `getTimestamp()`.
    GetTimestamp,
    /// `getTimestamps(range)`.
    GetTimestamps {
        /// The argument as sent, any number; `None`: the argument is missing.
        range: Option<i32>,
    },
    /// Another method. Its arguments have been skipped.
    Unknown,
}

/// A complete request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The method that the request calls.
    pub method: Method,
    /// The method's name, which the reply repeats: at most [`STRING_BYTES_MAX`] bytes of any value.
    pub name: &'a [u8],
    /// The sequence number, which the reply repeats.
    pub seqid: i32,
    /// Whether the client says that it waits for no reply. The original replies all the same.
    pub is_oneway: bool,
}

/// The form of a reply's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Versioned. Strict and lenient clients understand this form.
    #[default]
    Strict,
    /// Without a version, as the original writes. Strict clients do not understand this form.
    Old,
}

/// The kinds of `TApplicationException` that this service writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExceptionKind {
    /// The service has no such method.
    UnknownMethod = 1,
    /// The service understood the request and cannot serve it.
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
    /// What the server answered.
    pub outcome: Outcome<'a>,
}

/// What a server answered to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// The number that the method returned.
    Value(i64),
    /// A reply without a number.
    NoValue,
    /// An exception.
    Exception {
        /// The kind as sent; 0 if the exception has none. [`ExceptionKind`] names some kinds.
        kind: i32,
        /// The message as sent: usually text, but any bytes are possible.
        message: &'a [u8],
    },
}

/// Reads the request at the front of `bytes`, and how many bytes it has. `None`: more bytes must
/// come. A refused request stays refused whatever bytes follow. Cost: at most [`VALUES_MAX`] values
/// are read.
#[inline(always)] // 3 % of the instructions of a timestamp (benches/instructions, `timestamp x 16`)
pub fn parse_request(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, ThriftError> {
    let mut reader = Reader { bytes, at: 0, values_left: VALUES_MAX, bounds: REQUEST };
    reader.request().map(|request| Some((request, reader.at))).or_else(Stop::settle)
}

/// Reads the reply at the front of `bytes`, of either form, and how many bytes it has. `None`,
/// errors and cost: see [`parse_request`].
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

/// Appends an exception in answer to `request`.
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

/// Appends an exception in answer to the request at the front of `bytes`, if there is a whole one.
#[cold]
pub fn refuse_first(out: &mut Vec<u8>, form: Form, bytes: &[u8], why: (ExceptionKind, &str)) {
    if let Ok(Some((request, _))) = parse_request(bytes) {
        write_exception(out, form, &request, why);
    }
}

/// Appends the exception that the original writes for an unknown method.
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

/// Why reading stopped: more bytes must come, or the message is refused.
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

/// Most bytes of a string, and of the whole message.
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
    #[inline(always)]
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

    /// Reads the argument of `getTimestamps`. A field with the argument's number and another type
    /// is another field, as in generated code.
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

    /// Reads the first two bytes. The first wrong byte is refused, so that a client of another
    /// protocol does not wait for an answer.
    #[inline(always)]
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

    /// Type and number of the next field; `None`: the struct ends.
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

    /// Skips a value that lies in `depth` structs and containers beside the outermost struct.
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

    /// Skips the number of elements and the elements. Each element has one value of each of
    /// `types`.
    fn skip_elements(&mut self, types: &[u8], depth: u32) -> Result<(), Stop> {
        let size = self.i32()?;
        let size = usize::try_from(size).map_err(|_| ThriftError::ContainerSize(size))?;
        // An empty container may name any types.
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

/// Bytes of a value of this type; `None`: the values of the type differ in size.
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
