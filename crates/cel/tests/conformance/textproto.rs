//! A reader of protobuf's text format, as far as the conformance files use it.

/// A field's value.
#[derive(Clone, Debug)]
pub enum Node {
    /// A number, word or string, unescaped; strings are bytes.
    Scalar(Vec<u8>),
    /// A message.
    Message(Message),
}

/// Fields in order; a name may occur more than once.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<(String, Node)>);

impl Message {
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    pub fn message(&self, name: &str) -> Option<&Message> {
        match self.get(name)? {
            Node::Message(m) => Some(m),
            Node::Scalar(_) => None,
        }
    }

    pub fn messages<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Message> {
        self.0.iter().filter(move |(n, _)| n == name).filter_map(|(_, v)| match v {
            Node::Message(m) => Some(m),
            Node::Scalar(_) => None,
        })
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Node::Scalar(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Node::Message(_) => None,
        }
    }

    pub fn mentions(&self, word: &str) -> bool {
        self.0.iter().any(|(n, v)| {
            n.contains(word)
                || match v {
                    Node::Scalar(bytes) => String::from_utf8_lossy(bytes).contains(word),
                    Node::Message(m) => m.mentions(word),
                }
        })
    }
}

pub fn parse(text: &str) -> Result<Message, String> {
    let mut reader = Reader { bytes: text.as_bytes(), pos: 0 };
    let message = reader.fields(None)?;
    Ok(message)
}

struct Reader<'t> {
    bytes: &'t [u8],
    pos: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.pos).copied().unwrap_or(0)
    }

    fn blank(&mut self) {
        loop {
            match self.peek() {
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b';' => self.pos += 1,
                b'#' => {
                    while self.pos < self.bytes.len() && self.peek() != b'\n' {
                        self.pos += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn fields(&mut self, close: Option<u8>) -> Result<Message, String> {
        let mut out = Vec::new();
        loop {
            self.blank();
            if self.pos >= self.bytes.len() || Some(self.peek()) == close {
                self.pos += 1;
                return Ok(Message(out));
            }
            let name = self.word(b"[]/.");
            if name.is_empty() {
                return Err(format!("expected a field at byte {}", self.pos));
            }
            self.blank();
            if self.peek() == b':' {
                self.pos += 1;
                self.blank();
            }
            if self.peek() == b'[' {
                self.pos += 1;
                loop {
                    self.blank();
                    if self.peek() == b']' {
                        self.pos += 1;
                        break;
                    }
                    out.push((name.clone(), self.value()?));
                }
            } else {
                out.push((name, self.value()?));
            }
        }
    }

    fn word(&mut self, extra: &[u8]) -> String {
        let start = self.pos;
        while self.peek().is_ascii_alphanumeric()
            || matches!(self.peek(), b'_' | b'-' | b'+')
            || extra.contains(&self.peek())
        {
            self.pos += 1;
        }
        String::from_utf8_lossy(&self.bytes[start..self.pos]).into_owned()
    }

    fn value(&mut self) -> Result<Node, String> {
        match self.peek() {
            b'{' => {
                self.pos += 1;
                Ok(Node::Message(self.fields(Some(b'}'))?))
            }
            b'<' => {
                self.pos += 1;
                Ok(Node::Message(self.fields(Some(b'>'))?))
            }
            b'"' | b'\'' => {
                let mut out = Vec::new();
                while matches!(self.peek(), b'"' | b'\'') {
                    self.string(&mut out)?;
                    self.blank();
                }
                Ok(Node::Scalar(out))
            }
            _ => {
                let word = self.word(b".");
                if word.is_empty() {
                    Err(format!("expected a value at byte {}", self.pos))
                } else {
                    Ok(Node::Scalar(word.into_bytes()))
                }
            }
        }
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let quote = self.peek();
        self.pos += 1;
        loop {
            if self.pos >= self.bytes.len() {
                return Err("string without end".into());
            }
            let b = self.peek();
            self.pos += 1;
            if b == quote {
                return Ok(());
            }
            if b != b'\\' {
                out.push(b);
                continue;
            }
            let e = self.peek();
            self.pos += 1;
            let digits = |reader: &mut Self, radix: u32, max: usize| {
                let mut value = 0;
                for _ in 0..max {
                    match (reader.peek() as char).to_digit(radix) {
                        Some(d) => value = value * radix + d,
                        None => break,
                    }
                    reader.pos += 1;
                }
                value
            };
            match e {
                b'n' => out.push(b'\n'),
                b't' => out.push(b'\t'),
                b'r' => out.push(b'\r'),
                b'a' => out.push(7),
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'v' => out.push(11),
                b'x' | b'X' => out.push(digits(self, 16, 2) as u8),
                b'u' | b'U' => {
                    let code = digits(self, 16, if e == b'u' { 4 } else { 8 });
                    let c = char::from_u32(code).ok_or("bad code point")?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                b'0'..=b'7' => {
                    self.pos -= 1;
                    out.push(digits(self, 8, 3) as u8);
                }
                other => out.push(other),
            }
        }
    }
}
