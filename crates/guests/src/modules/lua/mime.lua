-- mime: the encodings of LuaSocket that need no state.
local ltn12 = require("ltn12")
local concat, format = table.concat, string.format
local mime = { _VERSION = "MIME 1.0.3" }

-- Base64 of whole groups, and what is left of the text.
local function b64(text, piece)
  if text == nil then
    return nil, ""
  elseif piece == nil then
    return ngx.encode_base64(text), nil
  end
  text = text .. piece
  local whole = #text - #text % 3
  return ngx.encode_base64(text:sub(1, whole)), text:sub(whole + 1)
end

local function unb64(text, piece)
  if text == nil then
    return nil, ""
  elseif piece == nil then
    return ngx.decode_base64(text) or "", nil
  end
  text = (text .. piece):gsub("[^%w+/=]", "")
  local whole = #text - #text % 4
  return ngx.decode_base64(text:sub(1, whole)) or "", text:sub(whole + 1)
end

mime.b64, mime.unb64 = b64, unb64

-- Quoted-printable.
function mime.qp(text)
  if text == nil then
    return nil, ""
  end
  return (text:gsub("[^\r\n\t !-<>-~]", function(c)
    return format("=%02X", c:byte())
  end)), ""
end

function mime.unqp(text)
  if text == nil then
    return nil, ""
  end
  text = text:gsub("=\r?\n", "")
  return (text:gsub("=(%x%x)", function(hex)
    return string.char(tonumber(hex, 16))
  end)), ""
end

-- Lines of so many characters.
function mime.wrap(text, length)
  local lines = {}
  for at = 1, #text, length or 76 do
    lines[#lines + 1] = text:sub(at, at + (length or 76) - 1)
  end
  return concat(lines, "\r\n")
end

local ENCODINGS = { base64 = b64, ["quoted-printable"] = mime.qp }
local DECODINGS = { base64 = unb64, ["quoted-printable"] = mime.unqp }

local function filter_of(known, name)
  local low = known[name or "base64"]
  if not low then
    error("unknown key (" .. tostring(name) .. ")", 3)
  elseif low == b64 or low == unb64 then
    return ltn12.filter.cycle(low, "")
  end
  return function(piece)
    return piece and low(piece)
  end
end

function mime.encode(name)
  return filter_of(ENCODINGS, name)
end

function mime.decode(name)
  return filter_of(DECODINGS, name)
end

return mime
