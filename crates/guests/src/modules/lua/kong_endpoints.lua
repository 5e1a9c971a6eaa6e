-- kong.api.endpoints: what `api.lua` of a plugin asks of the Admin API. The node has these endpoints for all entities of plugins,
-- so that each is a mark alone.
local GENERIC = {}

local function generic() return GENERIC end

return setmetatable({
  generic = GENERIC,
  not_found = generic, bad_request = generic, handle_error = generic, disable = generic,
}, { __index = function() return generic end })
