-- How code of configurations is evaluated: expressions of templates, and functions that return fields of records.
local kong = ...
local error, ipairs, pairs, pcall, rawget, rawset = error, ipairs, pairs, pcall, rawget, rawset
local setmetatable, type = setmetatable, type
local _M = {}

-- What templates see of the request. Each is read when a template first names it.
local loaders = {
  headers = function() return kong.request.get_headers() end,
  query_params = function() return kong.request.get_query() end,
  shared = function() return kong.ctx.shared end,
  consumer = function() return kong.client.get_consumer() or {} end,
  uri_captures = function()
    local captures, all = kong.request.get_uri_captures(), {}
    for _, kind in pairs(captures) do
      for key, value in pairs(kind) do
        all[key] = value
      end
    end
    return all
  end,
}

-- The globals of templates: the request over those of the sandbox, of which `kong` and `ngx` are for open ones alone.
-- `begin` forgets the request before.
function _M.template_globals(globals, is_open)
  local read = {}
  local env = setmetatable({}, {
    __metatable = false,
    __newindex = function()
      error("This environment is read-only.", 2)
    end,
    __index = function(_, name)
      local loader = loaders[name]
      if not loader then
        if is_open or (name ~= "kong" and name ~= "ngx" and name ~= "_G") then
          return globals[name]
        end
        return nil
      end
      if read[name] == nil then
        read[name] = loader()
      end
      return read[name]
    end,
  })
  local function begin()
    read = {}
  end
  return env, begin
end

-- A function that returns the results of the chunks that are wanted: whether each succeeded, and its value or error.
function _M.evaluator(chunks, begin)
  return function(wanted)
    if begin then
      begin()
    end
    local results = {}
    for i, chunk in ipairs(chunks) do
      results[i] = wanted[i] and { pcall(chunk) } or { true }
    end
    return results
  end
end

return _M
