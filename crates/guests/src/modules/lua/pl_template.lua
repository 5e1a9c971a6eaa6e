-- pl.template: text with Lua in it. `$(expression)` is its value, lines that begin with `#` are code.
local _M = {}

-- A text as a chunk that returns the result.
local function translate(text, escape, inline)
  local code = { "local __out = {}\nlocal function __put(value) __out[#__out + 1] = tostring(value) end\n" }
  local function add(line) code[#code + 1] = line end
  local function add_text(line)
    local at = 1
    while true do
      local from, to, expression = line:find(inline .. "(%b())", at)
      if not from then break end
      add(("__put(%q)\n__put(%s)\n"):format(line:sub(at, from - 1), expression))
      at = to + 1
    end
    add(("__put(%q)\n"):format(line:sub(at)))
  end
  for line in text:gmatch("[^\n]*\n?") do
    local lua = line:match("^%s*" .. escape .. "(.*)$")
    if lua then add(lua .. "\n") elseif line ~= "" then add_text(line) end
  end
  add("return table.concat(__out)")
  return table.concat(code)
end

local function escaped(char) return (char:gsub("%p", "%%%0")) end

-- A template with a method `render(env)`.
function _M.compile(text, options)
  options = options or {}
  local source = translate(text, escaped(options.escape or "#"), escaped(options.inline_escape or "$"))
  local chunk, message = loadstring(source, options.chunk_name or "TMP")
  if not chunk then return nil, message end
  return {
    render = function(_, env, parent)
      env = env or {}
      local names = setmetatable({ tostring = tostring, table = table }, {
        __index = function(_, name)
          if env[name] ~= nil then return env[name] end
          local outer = parent or env._parent
          return outer and outer[name]
        end,
      })
      local ok, result = pcall(setfenv(chunk, names))
      if ok then return result end
      return nil, result
    end,
  }
end

function _M.substitute(text, env)
  env = env or {}
  local template, message = _M.compile(text, {
    escape = env._escape, inline_escape = env._inline_escape, chunk_name = env._chunk_name,
  })
  if not template then return nil, message end
  return template:render(env)
end

return _M
