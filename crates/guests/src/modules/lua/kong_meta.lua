-- kong.meta: the version of Kong whose interface is offered.
local version = setmetatable({ major = 3, minor = 9, patch = 3 }, { __tostring = function() return "3.9.3" end })
return {
  version = "3.9.3",
  _NAME = "kong",
  _VERSION = "3.9.3",
  _VERSION_TABLE = version,
  version_num = 3009003,
  core_version = "3.9.3",
}
