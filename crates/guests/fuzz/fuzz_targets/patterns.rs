//! No pattern and no subject make the functions of `string` panic, run for long or disagree with each other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlua::{Function, Lua, LuaString};
use weir_guests::patterns;
use weir_guests::steps::Steps;

const CHECK: &str = r#"
return function(pattern, subject)
  local found = { pcall(string.find, subject, pattern) }
  local matched = { pcall(string.match, subject, pattern) }
  -- Without special characters, `find` looks for the text.
  if string.find(pattern, "[%^%$%*%+%?%.%(%[%%%-]") then
    assert(found[1] == matched[1], "find and match fail alike")
    assert((found[2] == nil) == (matched[2] == nil) or not found[1], "find and match agree")
  end
  if found[1] and found[2] then
    assert(found[2] >= 1 and found[3] >= found[2] - 1 and found[3] <= #subject, "the place is within the subject")
  end
  local function keep() end
  local ok, kept = pcall(string.gsub, subject, pattern, keep)
  assert(not ok or kept == subject, "a replacement by nothing keeps the subject")
  pcall(string.gsub, subject, pattern, "%1")
  pcall(function() for _ in string.gmatch(subject, pattern) do end end)
end
"#;

thread_local! {
    static VM: (Steps, Function, Lua) = {
        let lua = Lua::new();
        patterns::install(&lua).expect("patterns");
        (Steps::of(&lua), lua.load(CHECK).eval().expect("the check"), lua)
    };
}

fuzz_target!(|input: (&[u8], &[u8])| {
    VM.with(|(steps, check, lua)| {
        steps.refill();
        let text = |bytes: &[u8]| -> LuaString { lua.create_string(bytes).expect("a string") };
        let outcome = check.call::<()>((text(input.0), text(input.1)));
        if let Err(error) = outcome {
            // What ran out of steps may end any of the calls.
            assert!(error.to_string().contains("too many steps"), "{error}");
        }
    });
});
