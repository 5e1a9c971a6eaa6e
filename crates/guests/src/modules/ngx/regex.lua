-- The functions of ngx.re on three primitives: the captures and the place of a match, and the
-- substitution by a template.
local capture, locate, substitute = ...
local concat, sub, tostring, type = table.concat, string.sub, tostring, type

local function text(value)
  return type(value) == "string" and value or tostring(value)
end

-- The offset at which a context says to begin.
local function offset(context)
  local pos = context and context.pos
  return pos and pos > 0 and pos - 1 or 0
end

local function match(subject, regex, options, context, result)
  local from, to, captures = capture(text(subject), text(regex), options, offset(context), result)
  if not from then
    if to == nil then return nil end
    return nil, to
  end
  if context then context.pos = to + 1 end
  return captures
end

local function find(subject, regex, options, context, nth)
  nth = nth and nth > 0 and nth or 0
  local stop, from, to = locate(text(subject), text(regex), options, offset(context), nth)
  if not stop then
    if from == nil then return nil end
    return nil, nil, from
  end
  if context then context.pos = stop + 1 end
  return from, to
end

local function gmatch(subject, regex, options)
  subject, regex = text(subject), text(regex)
  local at = 0
  local function advance(from, to, captures, after)
    at = from and after
    if from then return captures end
    return nil, to
  end
  -- A malformed expression fails here, not at the first step.
  local from, message = capture("", regex, options, 0)
  if from == false then return nil, message end
  return function()
    if at then return advance(capture(subject, regex, options, at)) end
  end
end

-- Substitution by a function, which may call anything.
local function substitute_by(subject, regex, replace, options, global)
  subject, regex = text(subject), text(regex)
  local pieces, copied, at, count = {}, 0, 0, 0
  repeat
    local from, to, captures, after = capture(subject, regex, options, at)
    if from == false then return nil, nil, to end
    if not from then break end
    pieces[#pieces + 1] = sub(subject, copied + 1, from)
    pieces[#pieces + 1] = tostring((replace(captures)))
    count, copied = count + 1, to
    at = after
  until not global or at > #subject
  pieces[#pieces + 1] = sub(subject, copied + 1)
  return concat(pieces), count
end

local function replacer(global)
  return function(subject, regex, replace, options)
    if type(replace) == "function" then return substitute_by(subject, regex, replace, options, global) end
    local made, count, message = substitute(text(subject), text(regex), text(replace), options, global)
    if message == nil then return made, count end
    return made, count, message
  end
end

return { match = match, find = find, gmatch = gmatch, sub = replacer(false), gsub = replacer(true) }
