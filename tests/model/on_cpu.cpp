#include "tests/model/local_models.h"

moe::DeviceKind moe::models_device() { return DeviceKind::cpu; }
