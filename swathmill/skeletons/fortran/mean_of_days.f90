! Compute the mean of a layer over its days: mean_of_days IN.bin OUT.bin SAMPLES LINES BANDS.
!
! IN.bin has 32-bit floats in physical units, band after band (one for each day), NaN where there is
! none. OUT.bin, one band of the same size, is the output.
program mean_of_days
  use, intrinsic :: ieee_arithmetic, only: ieee_is_nan, ieee_quiet_nan, ieee_value
  use, intrinsic :: iso_fortran_env, only: int64, real32, real64
  implicit none
  character(len=4096) :: source, target
  integer :: pixels, days, day, input, output
  real(real32), allocatable :: values(:)
  real(real64), allocatable :: total(:)
  integer, allocatable :: number(:)

  call get_command_argument(1, source)
  call get_command_argument(2, target)
  pixels = argument(3) * argument(4)
  days = argument(5)
  allocate (values(pixels), total(pixels), number(pixels))
  total = 0
  number = 0
  open (newunit=input, file=trim(source), access='stream', form='unformatted', &
        convert='little_endian', status='old', action='read')
  do day = 1, days
    read (input) values
    where (.not. ieee_is_nan(values))
      total = total + values
      number = number + 1
    end where
  end do
  close (input)
  values = ieee_value(values, ieee_quiet_nan)
  where (number > 0) values = real(total / number, real32)
  open (newunit=output, file=trim(target), access='stream', form='unformatted', &
        convert='little_endian', status='replace', action='write')
  write (output) values
  close (output)
  print '(a, i0, a)', 'mean of ', days, ' days'

contains

  integer function argument(position)
    integer, intent(in) :: position
    character(len=32) :: text
    call get_command_argument(position, text)
    read (text, *) argument
  end function argument

end program mean_of_days
