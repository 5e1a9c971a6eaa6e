//! No text makes `cjson` panic, and what it decodes it encodes and decodes again to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlua::{Function, Lua, Value};
use weir_guests::modules;
use weir_guests::steps::Steps;

const CHECK: &str = r#"
local cjson = ...
cjson.encode_sparse_array(true)
cjson.encode_invalid_numbers(true)
return function(text)
  local value = cjson.decode(text)
  if value == nil then return end
  local encoded = assert(cjson.encode(value))
  local decoded, problem = cjson.decode(encoded)
  assert(decoded ~= nil, problem)
  local again = assert(cjson.encode(decoded))
  assert(#again == #encoded, "the second time is as the first")
end
"#;

thread_local! {
    static VM: (Steps, Function, Lua) = {
        let lua = Lua::new();
        let cjson: Value = modules::load(&lua, "cjson.safe").expect("no error").expect("cjson");
        (Steps::of(&lua), lua.load(CHECK).call(cjson).expect("the check"), lua)
    };
}

fuzz_target!(|text: &[u8]| {
    VM.with(|(steps, check, lua)| {
        steps.refill();
        let text = lua.create_string(text).expect("a string");
        check.call::<()>(text).expect("the check holds");
    });
});
