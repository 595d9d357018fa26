//! Text files in compressed form: gzip and Zstandard. [`TextInput`] gives what is in them, [`TextOutput`] makes them.
//!
//! A file that is read shows by its first bytes what it is: neither gzip's nor Zstandard's are text. Its name must not
//! say otherwise. A file that is written is what the end of its name says (`.gz`, `.zst`).
//!
//! Both are streams: a file is never in memory as a whole, whatever it expands to. A gzip file may have several members
//! and a Zstandard file several frames, one behind the other, as `cat` makes them.
//!
//! Source: RFC 1952 (gzip), RFC 8878 (Zstandard).

use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// First bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a Zstandard frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Compressed bytes that are read at once.
const BUFFER_BYTES: usize = 128 << 10;
/// Window that a client's stream of Zstandard may ask for, as a power of two: levels up to 19 need no more. Files may
/// ask for 128 MiB, the library's own limit.
const CLIENT_WINDOW_LOG_MAX: u32 = 23;
/// Zstandard's level when writing, which is its default.
const ZSTD_LEVEL: i32 = 3;

/// The compression of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// What the end of a file's name says; None: it is not compressed, or in a way that is not known here.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gz" | "gzip" => Some(Self::Gzip),
            "zst" | "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What the first bytes of a file say.
    fn of_bytes(first: &[u8]) -> Option<Self> {
        if first.starts_with(&GZIP) {
            Some(Self::Gzip)
        } else if first.starts_with(&ZSTD) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
        }
    }
}

/// The text of a file or stream, whether compressed or not. It reads nothing before it is read.
pub struct TextInput {
    /// What is not opened yet.
    raw: Option<Box<dyn Read + Send>>,
    /// The text; None before it is opened, and after an error.
    text: Option<Box<dyn Read + Send>>,
    named: Option<Compression>,
    found: Option<Compression>,
    window_log_max: Option<u32>,
}

impl TextInput {
    /// The text that a client sends, whose decompression takes no more memory than its connection may.
    pub fn of_client(raw: impl Read + Send + 'static) -> Self {
        Self { window_log_max: Some(CLIENT_WINDOW_LOG_MAX), ..Self::new(raw, "STDIN") }
    }

    /// The text of `raw`, which is called `name`.
    pub fn new(raw: impl Read + Send + 'static, name: &str) -> Self {
        let named = Compression::of_name(Path::new(name));
        Self { raw: Some(Box::new(raw)), text: None, named, found: None, window_log_max: None }
    }

    fn opened(&mut self, mut raw: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let mut first = Vec::with_capacity(ZSTD.len());
        (&mut raw).take(ZSTD.len() as u64).read_to_end(&mut first)?;
        self.found = Compression::of_bytes(&first);
        if let Some(named) = self.named.filter(|_| self.found != self.named) {
            let message = format!("it is no {} file, as its name says", named.name());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let whole = Cursor::new(first).chain(raw);
        Ok(match self.found {
            None => Box::new(whole),
            Some(Compression::Gzip) => {
                let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
                Box::new(MultiGzDecoder::new(buffered))
            }
            Some(Compression::Zstd) => {
                let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
                let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
                if let Some(log) = self.window_log_max {
                    decoder.window_log_max(log)?;
                }
                Box::new(decoder)
            }
        })
    }
}

impl Read for TextInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(raw) = self.raw.take() {
            self.text = Some(self.opened(raw)?);
        }
        let Some(text) = &mut self.text else { return Ok(0) };
        text.read(buffer).map_err(|error| match self.found {
            Some(found) if error.kind() != io::ErrorKind::Interrupted => {
                let message =
                    format!("its {} data is damaged or ends too early: {error}", found.name());
                io::Error::new(error.kind(), message)
            }
            _ => error,
        })
    }
}

impl std::fmt::Debug for TextInput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TextInput")
            .field("named", &self.named)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

/// Writes text to a file, compressed or not. [`TextOutput::finish`] ends it.
#[derive(Debug)]
pub enum TextOutput<W: Write> {
    /// As it is.
    Plain(W),
    /// As one member of gzip.
    Gzip(Box<GzEncoder<W>>),
    /// As one frame of Zstandard.
    Zstd(Box<ZstdEncoder<W>>),
}

/// Hides what the encoder's own `Debug` lacks.
pub struct ZstdEncoder<W: Write>(zstd::stream::write::Encoder<'static, W>);

impl<W: Write> std::fmt::Debug for ZstdEncoder<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ZstdEncoder").finish_non_exhaustive()
    }
}

impl<W: Write> TextOutput<W> {
    /// Writes to `sink`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(sink: W, compression: Option<Compression>) -> io::Result<Self> {
        Ok(match compression {
            None => Self::Plain(sink),
            Some(Compression::Gzip) => {
                Self::Gzip(Box::new(GzEncoder::new(sink, flate2::Compression::default())))
            }
            Some(Compression::Zstd) => {
                let encoder = zstd::stream::write::Encoder::new(sink, ZSTD_LEVEL)?;
                Self::Zstd(Box::new(ZstdEncoder(encoder)))
            }
        })
    }

    /// Writes what is left, and returns the sink, which is not flushed.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(sink) => Ok(sink),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.0.finish(),
        }
    }
}

impl<W: Write> Write for TextOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(sink) => sink.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(sink) => sink.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.0.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "id,title\n1,one\n2,two\n";

    fn compressed(compression: Option<Compression>) -> Vec<u8> {
        let mut output = TextOutput::new(Vec::new(), compression).unwrap();
        output.write_all(TEXT.as_bytes()).unwrap();
        output.finish().unwrap()
    }

    fn read(bytes: Vec<u8>, name: &str) -> io::Result<String> {
        let mut text = String::new();
        TextInput::new(Cursor::new(bytes), name).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn what_is_written_is_read_whatever_it_is_called() {
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd)] {
            let bytes = compressed(compression);
            assert_eq!(read(bytes.clone(), "a.csv").unwrap(), TEXT);
            // Several, one behind the other.
            let twice = [bytes.clone(), bytes].concat();
            assert_eq!(read(twice, "STDIN").unwrap(), [TEXT, TEXT].concat());
        }
        assert_eq!(read(Vec::new(), "a.csv").unwrap(), "");
    }

    #[test]
    fn a_client_asks_for_little_memory() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(25).unwrap();
        encoder.write_all(TEXT.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        assert_eq!(read(bytes.clone(), "a.csv").unwrap(), TEXT);
        let mut input = TextInput::of_client(Cursor::new(bytes));
        let error = input.read_to_string(&mut String::new()).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
        let mut input = TextInput::of_client(Cursor::new(compressed(Some(Compression::Zstd))));
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        assert_eq!(text, TEXT);
    }

    #[test]
    fn what_is_not_what_its_name_says_or_is_cut_off_is_refused() {
        for (bytes, name, part) in [
            (TEXT.as_bytes().to_vec(), "a.csv.gz", "no gzip file, as its name says"),
            (compressed(Some(Compression::Gzip)), "a.csv.zst", "no Zstandard file"),
            (Vec::new(), "a.GZ", "no gzip file"),
        ] {
            let error = read(bytes, name).unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
        for compression in [Compression::Gzip, Compression::Zstd] {
            let mut bytes = compressed(Some(compression));
            bytes.truncate(bytes.len() - 5);
            let error = read(bytes, "a").unwrap_err().to_string();
            assert!(error.contains("damaged or ends too early"), "{error}");
        }
    }
}
