//! The blocks of code of a page, and what the page says of each.

/// What the first line of a block of commands begins with, behind variables that it sets.
const PROGRAMS: [&str; 25] = [
    "callgrind_control",
    "cargo",
    "cat",
    "chown",
    "chronos",
    "chronos-loadgen",
    "cp",
    "curl",
    "docker",
    "dpkg",
    "for",
    "install",
    "kill",
    "kubectl",
    "openssl",
    "python3",
    "rpm",
    "sed",
    "sh",
    "sudo",
    "systemctl",
    "taskset",
    "umask",
    "until",
    "valgrind",
];
/// Spaces that make a block of code, beyond the text that it belongs to.
const CODE_INDENT: usize = 4;

/// What is to be done with a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text, or the bytes of a protocol.
    Text,
    /// Commands that end.
    Commands,
    /// Commands, of which the last goes on; ready when it listens at this address, or says this.
    KeepsRunning(String),
    /// Commands that need what no gate has.
    NotRun(String),
    /// What the commands before it print.
    Printed,
    /// A file of this name.
    File(String),
}

impl Kind {
    /// Whether the block is typed.
    pub fn is_run(&self) -> bool {
        matches!(self, Kind::Commands | Kind::KeepsRunning(_))
    }
}

/// A block of code.
#[derive(Clone, Debug)]
pub struct Block {
    /// The page, and the number of the block's first line.
    pub page: String,
    pub line: usize,
    /// The section: how many headings of the first two levels stand before the block.
    pub section: usize,
    pub kind: Kind,
    /// Without the indent.
    pub lines: Vec<String>,
}

impl Block {
    /// Whether the first line is a command.
    pub fn is_of_commands(&self) -> bool {
        is_command(&self.lines[0])
    }

    /// What is wrong with the page's words for the block.
    pub fn mistake(&self) -> Option<String> {
        let place = format!("{}:{}", self.page, self.line);
        match (&self.kind, self.is_of_commands()) {
            (Kind::Text | Kind::Printed | Kind::File(_), false) | (_, true) => {}
            (kind, false) => return Some(format!("{place}: {kind:?}, and no command")),
        }
        if self.is_of_commands() {
            return None;
        }
        let hidden = self.lines.iter().find(|line| is_command(line) && line.contains('/'));
        hidden.map(|line| format!("{place}: a command in a block of text: {line}"))
    }
}

/// Whether a line begins with a program of ours, of the project's folders, or one of [`PROGRAMS`],
/// or sets a variable. A synopsis, with flags in brackets, is no command.
fn is_command(line: &str) -> bool {
    if line.contains("[-") {
        return false;
    }
    let is_setting = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        word.contains('=') && !name.is_empty() && name.bytes().all(is_name)
    };
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let program =
        if is_setting(first) { words.find(|word| !is_setting(word)) } else { Some(first) };
    let is_program = |word: &str| {
        let folders = ["tests/", "target/", "packaging/"];
        PROGRAMS.contains(&word) || folders.iter().any(|folder| word.starts_with(folder))
    };
    is_setting(first) || program.is_some_and(is_program)
}

/// The blocks of a page, in order.
pub fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut reader = Reader { page, ..Reader::default() };
    for (number, line) in text.lines().enumerate() {
        reader.take(number + 1, line);
    }
    reader.end();
    reader.found
}

#[derive(Default)]
struct Reader<'a> {
    page: &'a str,
    found: Vec<Block>,
    /// The block that is being read.
    block: Option<Block>,
    /// The mark that was read and belongs to the next block.
    mark: Option<Kind>,
    section: usize,
    /// How far the text is indented that a block would belong to.
    text_indent: usize,
    is_fenced: bool,
    /// Whether the line before was empty or a mark: a paragraph cannot be continued by code.
    may_begin: bool,
}

impl Reader<'_> {
    fn take(&mut self, number: usize, line: &str) {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text.starts_with("```") {
            self.is_fenced = !self.is_fenced;
            if !self.is_fenced {
                self.end();
            }
            return;
        }
        if self.is_fenced {
            return self.add(number, line);
        }
        if text.is_empty() {
            // A block may have empty lines.
            if let Some(block) = &mut self.block {
                block.lines.push(String::new());
            }
            self.may_begin = true;
            return;
        }
        let is_code = indent >= self.text_indent + CODE_INDENT;
        if is_code && (self.block.is_some() || self.may_begin) {
            return self.add(number, &line[self.text_indent + CODE_INDENT..]);
        }
        self.end();
        self.may_begin = false;
        if let Some(mark) = mark_of(text) {
            self.mark = Some(mark);
            return;
        }
        assert!(self.mark.is_none(), "{}:{number}: a mark without a block", self.page);
        if line.starts_with("# ") || line.starts_with("## ") {
            self.section += 1;
        }
        self.text_indent = item_indent(line).unwrap_or(self.text_indent.min(indent));
    }

    fn add(&mut self, number: usize, line: &str) {
        let block = self.block.get_or_insert_with(|| Block {
            page: self.page.to_owned(),
            line: number,
            section: self.section,
            kind: Kind::Text,
            lines: Vec::new(),
        });
        block.lines.push(line.to_owned());
    }

    fn end(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        while block.lines.last().is_some_and(String::is_empty) {
            block.lines.pop();
        }
        let plain = if block.is_of_commands() { Kind::Commands } else { Kind::Text };
        block.kind = self.mark.take().unwrap_or(plain);
        self.found.push(block);
    }
}

/// What a comment of Markdown says of the block behind it.
fn mark_of(line: &str) -> Option<Kind> {
    let comment = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let known = match comment.split_once(": ") {
        Some(("not run", reason)) => Kind::NotRun(reason.to_owned()),
        Some(("file", name)) => Kind::File(name.to_owned()),
        Some(("keeps running", address)) => Kind::KeepsRunning(address.to_owned()),
        _ if comment == "printed" => Kind::Printed,
        _ => panic!("nobody understands the comment `{comment}`"),
    };
    Some(known)
}

/// How far the text of an item of a list is indented.
fn item_indent(line: &str) -> Option<usize> {
    let text = line.trim_start();
    let mark = text.split(' ').next().unwrap_or_default();
    let digits = mark.strip_suffix('.').unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let rest = &text[mark.len()..];
    (mark == "-" || mark == "*" || is_number).then(|| line.len() - rest.trim_start().len())
}
