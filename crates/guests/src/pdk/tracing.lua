-- kong.tracing: spans of the right shape that go nowhere, as where Kong's tracing is off.
local Span = {}
Span.__index = Span
Span.is_recording = false

local function chained(span) return span end
for _, method in ipairs({ "set_attribute", "set_status", "record_error", "add_event", "release", "each_baggage_item" }) do
  Span[method] = chained
end
function Span.finish() end

local function new() return setmetatable({}, { __index = Span, __metatable = false }) end

local tracing = { name = "noop" }
function tracing.start_span() return new() end
tracing.create_span = tracing.start_span
function tracing.active_span() return nil end
function tracing.set_active_span() end
function tracing.process_span() end
function tracing.set_should_sample() end
function tracing.get_sampling_decision() return false end
function tracing.link_span() end
setmetatable(tracing, { __call = function() return tracing end, __metatable = false })

return tracing
