-- pl.file: whole files.
local utils, path = require "pl.utils", require "pl.path"
return {
  read = utils.readfile,
  write = utils.writefile,
  modified_time = path.getmtime,
}
