variable "location" {
  type    = string
  default = "fsn1"
}

variable "server_type" {
  description = "One type for all three. Dedicated CPUs, because shared ones are disturbed by neighbours: ccx33 (x86). cax41 is Arm, shared."
  type        = string
  default     = "ccx33"
}

variable "public_key_file" {
  type    = string
  default = "~/.ssh/id_ed25519.pub"
}

variable "allowed_cidr" {
  description = "From where ssh is allowed, such as 203.0.113.7/32."
  type        = string
}

variable "weirlab" {
  description = "A weirlab of the hosts' architecture, such as that of its release archive, if it is another than this machine's."
  type        = string
  default     = null
}
