// The one unit that holds metal-cpp's own definitions.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "backends/metal/objects.h"
