variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "architecture" {
  description = "x86_64, or arm64 for Graviton."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "Write x86_64 or arm64."
  }
}

variable "target_type" {
  description = "The instance type of the gateway. By default c5.4xlarge, that of Kong's published figures, or c7g.4xlarge."
  type        = string
  default     = null
}

variable "load_type" {
  description = "The instance type of generator and upstream: as large as the target, so that they are not what limits a run."
  type        = string
  default     = null
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
