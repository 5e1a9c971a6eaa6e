//! Lua code that an input chooses.

use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Files that name the functions of the host.
const CASES: [&str; 5] = [
    include_str!("../../../src/tests/pdk.cases"),
    include_str!("../../../src/tests/cache.cases"),
    include_str!("../../../src/tests/shared.cases"),
    include_str!("../../../tests/cases/ngx.txt"),
    include_str!("../../../tests/cases/kong.txt"),
];
const NAMESPACES: [&str; 2] = ["kong.", "ngx."];

/// Functions of Lua's library, and modules.
const LIBRARY: &str = "assert error ipairs next pairs pcall select tonumber tostring type unpack xpcall load loadstring \
    setmetatable getmetatable rawget rawset rawequal rawlen setfenv getfenv collectgarbage gcinfo print require \
    coroutine.create coroutine.resume coroutine.running coroutine.status coroutine.wrap coroutine.yield coroutine.isyieldable \
    math.abs math.ceil math.floor math.fmod math.huge math.max math.min math.modf math.pow math.random math.randomseed math.sqrt \
    os.clock os.date os.difftime os.getenv os.time io.open io.lines io.type io.write io.close io.output \
    string.byte string.char string.find string.format string.gmatch string.gsub string.len string.lower string.match \
    string.rep string.reverse string.sub string.upper string.dump \
    table.concat table.insert table.maxn table.remove table.sort table.new table.clear table.move table.pack \
    bit.band bit.bor bit.bxor bit.lshift bit.tohex bit.tobit jit.off jit.on jit.version package.loaded package.preload \
    debug.sethook debug.getinfo debug.getregistry ffi.new newproxy";

const TEXTS: [&str; 32] = [
    "''", "'a'", "'x-one'", "'x_two'", "'%d+'", "'(a*)*b'", "'%b()'", "'[^%s]-$'", "'%s%5.2f%q'", "'cjson'", "'cjson.safe'", "'ffi'",
    "'string.buffer'", "'jit.util'", "'table.new'", "'ngx.re'", "'__index'", "'__gc'", "'__metatable'", "'k'", "'return ...'",
    "'return 1LL'", "'\\27LJ\\2'", "'{\"a\":[1,{}]}'", "'a\\0b'", "'\\r\\nx: y'", "'*a'", "'no-such-file'", "'127.0.0.1'", "'kong'",
    "('a'):rep(300)", "('ab'):rep(70000)",
];
const NUMBERS: [&str; 16] = [
    "0", "1", "-1", "2", "3", "8", "255", "200", "1e3", "1e9", "2^31", "-2^53", "0/0", "1/0", "0.001", "1LL",
];
const BINARY: [&str; 14] =
    ["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", "and", "or", ".."];
const EVENTS: [&str; 16] = [
    "__index", "__newindex", "__call", "__tostring", "__eq", "__lt", "__le", "__concat", "__len", "__unm", "__add", "__gc", "__mode",
    "__metatable", "__pairs", "__name",
];
const LOCALS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const MAX_DEPTH: u32 = 6;
const MAX_CODE: usize = 4096;

/// The names of functions, with dots.
pub fn names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let words = CASES.iter().flat_map(|text| {
            text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_')))
        });
        let of_host = words.filter(|word| NAMESPACES.iter().any(|name| word.starts_with(name)));
        let all = of_host.map(|word| word.trim_end_matches('.')).chain(LIBRARY.split_whitespace());
        all.collect::<BTreeSet<_>>().into_iter().collect()
    });
    &NAMES
}

/// Writes code of what an input chooses.
pub struct Code<'i> {
    input: std::slice::Iter<'i, u8>,
    text: String,
    depth: u32,
}

impl<'i> Code<'i> {
    /// The code of an input.
    pub fn of(input: &'i [u8]) -> String {
        let mut code = Self { input: input.iter(), text: String::new(), depth: 0 };
        code.text.push_str("local a, b, c, d, e, f = 1, 'b', {}\n");
        while !code.input.as_slice().is_empty() && code.text.len() < MAX_CODE {
            code.statement();
        }
        code.text
    }

    /// A choice among so many. The first where the input has ended.
    fn choose(&mut self, of: usize) -> usize {
        let byte = usize::from(self.input.next().copied().unwrap_or_default());
        if of <= 256 { byte % of } else { (byte << 8 | self.choose(256)) % of }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn one_of(&mut self, texts: &[&str]) {
        let at = self.choose(texts.len());
        self.push(texts[at]);
    }

    fn block(&mut self) {
        for _ in 0..=self.choose(3) {
            self.statement();
        }
    }

    fn statement(&mut self) {
        if self.depth >= MAX_DEPTH {
            return self.call_statement();
        }
        self.depth += 1;
        match self.choose(12) {
            0..=2 => self.assignment(),
            3..=5 => self.call_statement(),
            6 => self.condition(),
            7 => self.repetition(),
            8 => {
                self.push("pcall(function() ");
                self.block();
                self.push(" end)\n");
            }
            9 => {
                self.push("coroutine.wrap(function() ");
                self.block();
                self.push(" end)()\n");
            }
            10 => self.metatable(),
            _ => {
                self.push("do local ");
                self.one_of(&LOCALS);
                self.push(" = ");
                self.expression();
                self.push("\n");
                self.block();
                self.push(" end\n");
            }
        }
        self.depth -= 1;
    }

    fn assignment(&mut self) {
        match self.choose(4) {
            0 => self.indexed(),
            1 => self.named(),
            _ => self.one_of(&LOCALS),
        }
        self.push(" = ");
        self.expression();
        self.push("\n");
    }

    fn call_statement(&mut self) {
        // What fails is not the end, mostly.
        match self.choose(4) {
            0 => {
                self.push("local _ = ");
                self.call();
            }
            _ => {
                self.push("pcall(");
                self.named();
                self.more_arguments();
                self.push(")");
            }
        }
        self.push("\n");
    }

    fn condition(&mut self) {
        self.push("if ");
        self.expression();
        self.push(" then ");
        self.block();
        self.push(" else ");
        self.block();
        self.push(" end\n");
    }

    fn repetition(&mut self) {
        match self.choose(4) {
            0 => {
                self.push("for i = 1, ");
                self.one_of(&NUMBERS);
            }
            1 => {
                self.push("for k, v in pairs(");
                self.expression();
                self.push(")");
            }
            2 => {
                self.push("for k in ");
                self.expression();
            }
            _ => {
                self.push("while ");
                self.expression();
            }
        }
        self.push(" do ");
        self.block();
        self.push(" end\n");
    }

    fn metatable(&mut self) {
        self.push("pcall(setmetatable, ");
        self.one_of(&LOCALS);
        self.push(", { ");
        self.one_of(&EVENTS);
        self.push(" = ");
        self.expression();
        self.push(" })\n");
    }

    fn indexed(&mut self) {
        self.one_of(&LOCALS);
        self.push("[");
        self.expression();
        self.push("]");
    }

    fn named(&mut self) {
        let names = names();
        let at = self.choose(names.len().max(257));
        self.push(names[at % names.len()]);
    }

    fn more_arguments(&mut self) {
        for _ in 0..self.choose(4) {
            self.push(", ");
            self.expression();
        }
    }

    fn call(&mut self) {
        match self.choose(4) {
            0 => {
                self.push("(");
                self.expression();
                self.push("):");
                self.one_of(&["rep", "gsub", "find", "match", "format", "sub", "byte", "set", "get", "incr", "send", "connect", "close"]);
                self.push("(");
            }
            1 => {
                self.one_of(&LOCALS);
                self.push("(");
            }
            _ => {
                self.named();
                self.push("(");
            }
        }
        self.push("nil");
        if self.choose(4) > 0 {
            self.text.truncate(self.text.len() - 3);
            self.expression();
        }
        self.more_arguments();
        self.push(")");
    }

    fn expression(&mut self) {
        if self.depth >= MAX_DEPTH {
            return self.simple();
        }
        self.depth += 1;
        match self.choose(12) {
            0..=3 => self.simple(),
            4 | 5 => self.call(),
            6 => self.indexed(),
            7 => self.named(),
            8 => {
                self.push("(");
                self.expression();
                self.push(" ");
                self.one_of(&BINARY);
                self.push(" ");
                self.expression();
                self.push(")");
            }
            9 => {
                self.push("{ ");
                for _ in 0..self.choose(4) {
                    self.expression();
                    self.push(", ");
                }
                self.push("k = ");
                self.expression();
                self.push(" }");
            }
            10 => {
                self.push("function(a, b, ...) ");
                self.block();
                self.push(" return ");
                self.expression();
                self.push(" end");
            }
            _ => {
                self.one_of(&["#", "-", "not "]);
                self.expression();
            }
        }
        self.depth -= 1;
    }

    fn simple(&mut self) {
        match self.choose(8) {
            0 | 1 => self.one_of(&LOCALS),
            2 | 3 => self.one_of(&TEXTS),
            4 | 5 => self.one_of(&NUMBERS),
            6 => self.one_of(&["nil", "true", "false"]),
            _ => self.raw_text(),
        }
    }

    /// A string of the input's own bytes.
    fn raw_text(&mut self) {
        self.push("'");
        for _ in 0..self.choose(12) {
            let byte = self.choose(256);
            self.push(&format!("\\{byte:03}"));
        }
        self.push("'");
    }
}
