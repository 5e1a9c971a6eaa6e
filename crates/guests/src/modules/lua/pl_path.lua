-- pl.path: paths of files.
local lfs = require "lfs"
local _M = { sep = "/", is_windows = false, dirsep = ":" }

local function attribute(path, name)
  return (lfs.attributes(path, name))
end

function _M.exists(path) return attribute(path, "mode") ~= nil and path end
function _M.isfile(path) return attribute(path, "mode") == "file" end
function _M.isdir(path) return attribute(path, "mode") == "directory" end
function _M.getsize(path) return attribute(path, "size") end
function _M.getmtime(path) return attribute(path, "modification") end
function _M.currentdir() return lfs.currentdir() end
function _M.isabs(path) return path:sub(1, 1) == "/" end

function _M.splitpath(path)
  local folder, name = path:match("^(.*)/([^/]*)$")
  if not folder then return "", path end
  return folder, name
end

function _M.splitext(path)
  local stem, extension = path:match("^(.*[^/])(%.[^%./]*)$")
  if not stem then return path, "" end
  return stem, extension
end

function _M.dirname(path) return (_M.splitpath(path)) end
function _M.basename(path) return (select(2, _M.splitpath(path))) end
function _M.extension(path) return (select(2, _M.splitext(path))) end

function _M.join(first, ...)
  for _, part in ipairs({ ... }) do
    if _M.isabs(part) then
      first = part
    else
      first = first .. ((first == "" or first:sub(-1) == "/") and "" or "/") .. part
    end
  end
  return first
end

function _M.normpath(path)
  local kept, absolute = {}, _M.isabs(path)
  for part in path:gmatch("[^/]+") do
    if part == ".." and #kept > 0 and kept[#kept] ~= ".." then
      kept[#kept] = nil
    elseif part ~= "." and not (part == ".." and absolute) then
      kept[#kept + 1] = part
    end
  end
  local normal = (absolute and "/" or "") .. table.concat(kept, "/")
  return normal == "" and "." or normal
end

function _M.abspath(path, base)
  if _M.isabs(path) then return _M.normpath(path) end
  return _M.normpath(_M.join(base or _M.currentdir(), path))
end

return _M
