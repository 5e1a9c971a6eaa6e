//! `zlib`: streams of lua-zlib. A stream is a function that takes a part of the input and returns that of the output.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder, ZlibDecoder, ZlibEncoder};
use mlua::{Function, Lua, LuaString, Value};

use crate::args;
use crate::raise::{self, Checked, Raised};
use crate::steps::{self, Steps};

/// How much input is read between two looks at the budget. It may become a thousand times as much.
const CHUNK: usize = 1024;
/// How much is compressed between two looks at the budget.
const PART: usize = 64 << 10;
/// How much may come of one part of the input.
const MAX_OUTPUT: usize = 64 << 20;
/// What a stream costs to make, whose state has hundreds of KiB.
const STEPS_PER_STREAM: usize = 100_000;
/// Window bits beyond this ask for gzip.
const ZLIB_WINDOW: i64 = 15;

/// How many streams of a VM may be open.
const MAX_STREAMS: usize = 64;

/// How many streams of a VM are open.
#[derive(Debug, Clone, Default)]
struct Streams(Rc<Cell<usize>>);

/// One of them, until it is dropped.
struct OpenStream(Streams);

impl OpenStream {
    /// One more. The collector does not know what memory a stream has, so that it is told when there are too many.
    fn new(lua: &Lua) -> Checked<Self> {
        Steps::of(lua).take_many(STEPS_PER_STREAM)?;
        let known = lua.app_data_ref::<Streams>().map(|streams| streams.clone());
        let streams = known.unwrap_or_else(|| {
            let streams = Streams::default();
            lua.set_app_data(streams.clone());
            streams
        });
        if streams.0.get() >= MAX_STREAMS {
            lua.gc_collect()?;
        }
        if streams.0.get() >= MAX_STREAMS {
            return Err(format!("{MAX_STREAMS} streams are open: finish some").into());
        }
        streams.0.update(|count| count + 1);
        Ok(Self(streams))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.0.update(|count| count - 1);
    }
}

/// `zlib`.
pub(super) fn zlib(lua: &Lua) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    let deflate = raise::function(lua, |lua, (level, window): (Value, Value)| {
        let level = args::integer(lua, "deflate", 1, &level, 6)?.clamp(0, 9);
        let window = args::integer(lua, "deflate", 2, &window, ZLIB_WINDOW)?;
        deflate(lua, Compression::new(level as u32), window > ZLIB_WINDOW)
    })?;
    table.raw_set("deflate", deflate)?;
    table.raw_set("inflate", raise::function(lua, |lua, _: Value| inflate(lua))?)?;
    for (level, name) in [(9, "BEST_COMPRESSION"), (1, "BEST_SPEED"), (-1, "DEFAULT_COMPRESSION")] {
        table.raw_set(name, level)?;
    }
    table.raw_set("_VERSION", "lua-zlib 1.2")?;
    Ok(Value::Table(table))
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
}

impl Encoder {
    fn write(&mut self, data: &[u8], flush: bool, steps: &Steps) -> Checked<()> {
        let writer: &mut dyn Write = match self {
            Self::Gzip(encoder) => encoder,
            Self::Zlib(encoder) => encoder,
        };
        let failed = |error: io::Error| Raised::Text(error.to_string());
        for part in data.chunks(PART) {
            let begun = steps::thread_time();
            writer.write_all(part).map_err(failed)?;
            steps.take_since(begun)?;
        }
        if flush { writer.flush().map_err(failed) } else { Ok(()) }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zlib(encoder) => encoder.finish(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zlib(encoder) => encoder.get_mut(),
        })
    }
}

/// A stream that compresses. The second argument is `"sync"`, `"full"` or `"finish"`.
fn deflate(lua: &Lua, level: Compression, gzip: bool) -> Checked<Function> {
    let encoder = match gzip {
        true => Encoder::Gzip(GzEncoder::new(Vec::new(), level)),
        false => Encoder::Zlib(ZlibEncoder::new(Vec::new(), level)),
    };
    let state = RefCell::new(Some((encoder, OpenStream::new(lua)?)));
    let totals = RefCell::new((0, 0));
    let steps = Steps::of(lua);
    let stream = raise::function(lua, move |lua, (data, flush): (Option<LuaString>, Option<LuaString>)| {
        let mut state = state.borrow_mut();
        let Some((encoder, _)) = state.as_mut() else {
            return Err("IllegalState: calling deflate function when stream was previously closed".into());
        };
        let data = data.map(|data| data.as_bytes().to_vec()).unwrap_or_default();
        let finish = flush.as_ref().is_some_and(|flush| flush == "finish");
        encoder.write(&data, flush.is_some() && !finish, &steps)?;
        let mut out = encoder.take();
        if finish && let Some((encoder, _)) = state.take() {
            out.extend(encoder.finish().map_err(|error| Raised::Text(error.to_string()))?);
        }
        let mut totals = totals.borrow_mut();
        *totals = (totals.0 + data.len(), totals.1 + out.len());
        steps.announce(out.len());
        Ok((lua.create_string(out)?, finish, totals.0, totals.1))
    })?;
    Ok(stream)
}

enum Decoder {
    Gzip(GzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
}

impl Decoder {
    /// A decoder for what begins with these bytes.
    fn new(data: &[u8]) -> Self {
        match data.first() {
            Some(0x1f) => Self::Gzip(GzDecoder::new(Vec::new())),
            _ => Self::Zlib(ZlibDecoder::new(Vec::new())),
        }
    }

    /// The output for a part of the input, and whether the stream has ended.
    fn decode(&mut self, data: &[u8], steps: &Steps) -> Checked<(Vec<u8>, bool)> {
        let (mut out, mut ended) = (Vec::new(), false);
        for chunk in data.chunks(CHUNK) {
            let mut rest = chunk;
            while !rest.is_empty() && !ended {
                let taken =
                    self.write(rest).map_err(|error| Raised::Text(format!("IllegalState: {error}")))?;
                ended = taken == 0;
                rest = &rest[taken..];
            }
            let part = self.take();
            steps.take_many(part.len())?;
            out.extend(part);
            if out.len() > MAX_OUTPUT {
                return Err(format!(
                    "the output has more than {MAX_OUTPUT} bytes: pass less of the input at once"
                )
                .into());
            }
        }
        self.flush().map_err(|error| Raised::Text(format!("IllegalState: {error}")))?;
        out.extend(self.take());
        Ok((out, ended || self.is_complete()))
    }

    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.write(data),
            Self::Zlib(decoder) => decoder.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(decoder) => decoder.flush(),
            Self::Zlib(decoder) => decoder.flush(),
        }
    }

    /// Whether the input so far is a whole stream.
    fn is_complete(&mut self) -> bool {
        match self {
            Self::Gzip(decoder) => decoder.try_finish().is_ok(),
            Self::Zlib(decoder) => decoder.try_finish().is_ok(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
        })
    }
}

/// A stream that decompresses gzip and zlib.
fn inflate(lua: &Lua) -> Checked<Function> {
    let open = OpenStream::new(lua)?;
    let state = (RefCell::<Option<Decoder>>::default(), open);
    let totals = RefCell::new((0, 0));
    let steps = Steps::of(lua);
    let stream = raise::function(lua, move |lua, data: Option<LuaString>| {
        let data = data.map(|data| data.as_bytes().to_vec()).unwrap_or_default();
        let mut decoder = state.0.borrow_mut();
        let (out, ended) = decoder.get_or_insert_with(|| Decoder::new(&data)).decode(&data, &steps)?;
        let mut totals = totals.borrow_mut();
        *totals = (totals.0 + data.len(), totals.1 + out.len());
        steps.announce(out.len());
        Ok((lua.create_string(out)?, ended, totals.0, totals.1))
    })?;
    Ok(stream)
}
