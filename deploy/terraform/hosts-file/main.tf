# Renders the file that `weirlab run --hosts` reads.
terraform {
  required_version = ">= 1.5"
}

variable "hosts" {
  description = "By name: where a host is reached by ssh, its address on the network that carries the load, and what it is for."
  type = map(object({
    address          = string
    internal_address = string
    roles            = list(string)
  }))

  validation {
    condition     = alltrue([for role in ["target", "upstream", "generator"] : anytrue([for host in var.hosts : contains(host.roles, role)])])
    error_message = "A run needs a host with each of the roles target, upstream and generator."
  }
}

variable "user" {
  type = string
}

variable "port" {
  type    = number
  default = 22
}

variable "identity_file" {
  type = string
}

variable "weirlab" {
  description = "A weirlab of the hosts' architecture, if it is another than this machine's."
  type        = string
  default     = null
}

# Lines rather than a heredoc, because programs differ in what they take off an indented one.
output "toml" {
  value = join("\n", flatten([for name, host in var.hosts : [
    "[hosts.${name}]",
    "roles = ${jsonencode(host.roles)}",
    "address = ${jsonencode(host.address)}",
    "internal_address = ${jsonencode(host.internal_address)}",
    "user = ${jsonencode(var.user)}",
    "port = ${var.port}",
    "identity_file = ${jsonencode(var.identity_file)}",
    [for path in compact([var.weirlab]) : "weirlab = ${jsonencode(path)}"],
    "",
  ]]))
}
