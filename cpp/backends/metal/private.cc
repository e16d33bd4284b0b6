// The one unit that holds metal-cpp's own definitions.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include <cmath>  // metal-cpp uses INFINITY and leaves the header to the system

#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
