-- ltn12: sources, sinks and pumps of LuaSocket.
local error, select, type, unpack = error, select, type, unpack
local filter, source, sink, pump = {}, {}, {}, {}
local ltn12 = { filter = filter, source = source, sink = sink, pump = pump, BLOCKSIZE = 2048, _VERSION = "LTN12 1.0.3" }

-- Sources return pieces until they return nil.
function source.empty()
  return function()
    return nil
  end
end

function source.error(message)
  return function()
    return nil, message
  end
end

function source.string(text)
  if not text then
    return source.empty()
  end
  local at = 1
  return function()
    local piece = text:sub(at, at + ltn12.BLOCKSIZE - 1)
    at = at + ltn12.BLOCKSIZE
    return piece ~= "" and piece or nil
  end
end

function source.table(pieces)
  local at = 0
  return function()
    at = at + 1
    return pieces[at]
  end
end

function source.file(file, message)
  if not file then
    return source.error(message or "unable to open file")
  end
  return function()
    local piece = file:read(ltn12.BLOCKSIZE)
    if not piece then
      file:close()
    end
    return piece
  end
end

function source.simplify(from)
  return function()
    local piece, message, other = from()
    from = other or from
    if not piece then
      return nil, message
    end
    return piece
  end
end

function source.cat(...)
  local sources, at = { ... }, 1
  return function()
    while sources[at] do
      local piece, message = sources[at]()
      if piece or message then
        return piece, message
      end
      at = at + 1
    end
  end
end

-- A filter is called with pieces, and at the end with nil. What it returns beside nil is passed on.
function source.chain(from, ...)
  local through = filter.chain(...)
  local has_ended = false
  return function()
    while not has_ended do
      local piece, message = from()
      if message then
        return nil, message
      end
      has_ended = piece == nil
      local made = through(piece)
      if made ~= nil and made ~= "" then
        return made
      end
    end
  end
end

function filter.cycle(low, context, extra)
  return function(piece)
    local made
    made, context = low(context, piece, extra)
    return made
  end
end

function filter.chain(...)
  local filters, count = { ... }, select("#", ...)
  if count == 1 then
    return (...)
  end
  return function(piece)
    if piece ~= nil then
      for i = 1, count do
        piece = filters[i](piece)
      end
      return piece
    end
    -- What each filter has left goes through those after it.
    local left = ""
    for i = 1, count do
      local made = left ~= "" and filters[i](left) or ""
      left = made .. (filters[i](nil) or "")
    end
    return left ~= "" and left or nil
  end
end

-- Sinks take pieces, and nil at the end.
function sink.table(pieces)
  pieces = pieces or {}
  return function(piece)
    if piece then
      pieces[#pieces + 1] = piece
    end
    return 1
  end, pieces
end

function sink.null()
  return function()
    return 1
  end
end

function sink.error(message)
  return function()
    return nil, message
  end
end

function sink.file(file, message)
  if not file then
    return sink.error(message or "unable to open file")
  end
  return function(piece)
    if piece then
      return file:write(piece)
    end
    file:close()
    return 1
  end
end

function sink.simplify(into)
  return function(piece, message)
    local taken, why = into(piece, message)
    if not taken then
      return nil, why
    end
    into = type(why) == "function" and why or into
    return 1
  end
end

function sink.chain(...)
  local parts = { ... }
  local into = table.remove(parts)
  local through = filter.chain(unpack(parts))
  return function(piece, message)
    local made = through(piece)
    if made ~= nil and made ~= "" then
      local taken, why = into(made, message)
      if not taken then
        return nil, why
      end
    end
    return piece == nil and into(nil, message) or 1
  end
end

function pump.step(from, into)
  local piece, message = from()
  local taken, why = into(piece, message)
  if piece and taken then
    return 1
  end
  return nil, message or why
end

function pump.all(from, into, step)
  if not from or not into then
    error("bad argument to 'all' (a source and a sink expected)", 2)
  end
  step = step or pump.step
  while true do
    local moved, message = step(from, into)
    if not moved then
      return not message and 1 or nil, message
    end
  end
end

return ltn12
