-- kong.meta: the version of Kong whose interface is offered.
local _, native = ...
local text = native.version
local major, minor, patch = text:match("(%d+)%.(%d+)%.(%d+)")
local version = { major = tonumber(major), minor = tonumber(minor), patch = tonumber(patch) }
return {
  version = text,
  _NAME = "kong",
  _VERSION = text,
  _VERSION_TABLE = setmetatable(version, { __tostring = function() return text end }),
  version_num = native.number,
  core_version = text,
}
